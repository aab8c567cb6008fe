package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/rdmatune/rdmatune/internal/smallfile"
	"github.com/rdmatune/rdmatune/param"
)

// journalName is the journal's file in the state directory. It is there only from
// the first intent of an apply until its state is committed.
const journalName = "journal.jsonl"

const maxJournal = 256 << 20

// A Record is one line of the journal.
type Record struct {
	Run    string `json:"run"`     // the experiment of the apply
	BootID string `json:"boot_id"` // of which the changes are part
	// Changes are about to be written: Old is what was found, New what will be.
	Changes []param.Change `json:"changes,omitempty"`
	// Workload and Generation announce a generation before any process hears of it.
	Workload   string      `json:"workload,omitempty"`
	Generation *Generation `json:"generation,omitempty"`
	// Rejection, of Workload: it is about to be rolled back.
	Rejection *Rejection `json:"rejection,omitempty"`
	// Guards are to be measured after the changes.
	Guards []string `json:"guards,omitempty"`
}

// A Journal makes intents durable before they are carried out.
type Journal struct {
	dir string
	f   *os.File
}

// OpenJournal opens the journal for appending; the file appears at the first record.
func OpenJournal(dir string) *Journal { return &Journal{dir: dir} }

// Append writes r and waits until it is on the disk. Nothing may be written to the
// node before Append has returned without an error.
func (j *Journal) Append(r Record) error {
	if j.f == nil {
		if err := os.MkdirAll(j.dir, 0o700); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		f, err := os.OpenFile(filepath.Join(j.dir, journalName), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		j.f = f
		if err := j.cutTornLine(); err != nil {
			return err
		}
		if err := syncDir(j.dir); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if _, err := j.f.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := j.f.Sync(); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// cutTornLine drops what a crash left of a half-written last line, so that the
// next record does not become part of it.
func (j *Journal) cutTornLine() error {
	b, err := io.ReadAll(io.LimitReader(j.f, maxJournal))
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	end := bytes.LastIndexByte(b, '\n') + 1
	if end == len(b) {
		return nil
	}
	if err := j.f.Truncate(int64(end)); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// Remove ends the journal: the state now holds all that it said.
func (j *Journal) Remove() error {
	err := j.Close()
	if rmErr := os.Remove(filepath.Join(j.dir, journalName)); rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
		return fmt.Errorf("journal: %w", rmErr)
	}
	if _, statErr := os.Stat(j.dir); statErr != nil {
		return err // nothing was ever written
	}
	return errors.Join(err, syncDir(j.dir))
}

// Close closes the file and leaves it for recovery.
func (j *Journal) Close() error {
	if j.f == nil {
		return nil
	}
	err := j.f.Close()
	j.f = nil
	return err
}

// ReadJournal returns the records that an interrupted apply left, none when there
// is no journal. A torn last line, which a crash in the middle of Append leaves,
// was never acted upon and is ignored.
func ReadJournal(dir string) ([]Record, error) {
	b, err := smallfile.Read(filepath.Join(dir, journalName), maxJournal, smallfile.Any)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	var out []Record
	for line := 1; ; line++ {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			return out, nil
		}
		var r Record
		if err := json.Unmarshal(b[:i], &r); err != nil {
			return nil, fmt.Errorf("journal: line %d: %w", line, err)
		}
		out = append(out, r)
		b = b[i+1:]
	}
}

// Recover merges what an interrupted apply left into d: the originals of changes
// that may have been written, and generations that processes may have heard of.
// It replays nothing; an ordinary plan then decides. The apply may have come as far as
// saving the state: what it restored is in d no more then, and its original is what it was
// restored to.
func (d *Document) Recover(records []Record) {
	for _, r := range records {
		for _, g := range r.Guards {
			if !slices.Contains(d.Unmeasured, g) {
				d.Unmeasured = append(d.Unmeasured, g)
			}
		}
		if r.Generation != nil && r.Generation.Counter > d.Generations[r.Workload].Counter {
			d.Generations[r.Workload] = *r.Generation
		}
		if r.Rejection != nil {
			d.Reject(r.Workload, *r.Rejection)
		}
		for _, c := range r.Changes {
			k := Key{c.Target.Key(), c.ID, c.Index}
			e := d.Find(r.BootID, k)
			original := c.Old
			if c.Action == param.Restore {
				original = c.New
			}
			if e == nil && !original.IsKnown() {
				continue // nothing to go back to
			}
			if e == nil {
				d.Put(Entry{BootID: r.BootID, Target: k.Target, ID: c.ID, Index: c.Index,
					Original: original, Written: c.Old, Workloads: []string{c.Workload}})
				e = d.Find(r.BootID, k)
			}
			if e.Ours(c.Old) {
				e.Written = c.Old
			}
			e.Maybe = &c.New
		}
	}
}

// Wrote notes that a change was carried out: its old value becomes the original if
// the setting was not managed before.
func (d *Document) Wrote(bootID string, c param.Change) {
	k := Key{c.Target.Key(), c.ID, c.Index}
	if e := d.Find(bootID, k); e != nil {
		e.Written, e.Maybe = c.New, nil
		e.addWorkload(c.Workload)
		return
	}
	if !c.Old.IsKnown() {
		return // nothing to go back to
	}
	d.Put(Entry{BootID: bootID, Target: k.Target, ID: c.ID, Index: c.Index,
		Original: c.Old, Written: c.New, Workloads: []string{c.Workload}})
}

func (e *Entry) addWorkload(w string) {
	if i, have := slices.BinarySearch(e.Workloads, w); !have {
		e.Workloads = slices.Insert(e.Workloads, i, w)
	}
}
