package state

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/renameio/v2"

	"github.com/rdmatune/rdmatune/internal/smallfile"
	"github.com/rdmatune/rdmatune/param"
)

// formatVersion is the version of the document that this code writes. A document
// of a higher version is refused: it may mean something that this code would lose.
const formatVersion = 1

// maxDocument bounds what is read: 100,000 entries of 500 bytes are below it.
const maxDocument = 64 << 20

// A Document is the state of one node. Its zero value is a node never touched.
type Document struct {
	Version int `json:"version"`
	// Lineage is random and given once, to tell two nodes' documents apart; Serial
	// counts the writes.
	Lineage string `json:"lineage"`
	Serial  uint64 `json:"serial"`
	// SpecRoot is the spec that this state belongs to. Applying another one would
	// restore all that this one set, so it takes consent.
	SpecRoot   string `json:"spec_root,omitempty"`
	SpecDigest string `json:"spec_digest,omitempty"`
	GitCommit  string `json:"git_commit,omitempty"`

	// Destroyed counts how often all originals were restored for good: what a daemon remembers
	// from before the last time is of no use any more. It is never lowered.
	Destroyed uint64 `json:"destroyed,omitempty"`

	// Generations holds a counter for each workload address that ever had a hint. A
	// counter is never lowered nor dropped: a connection switches only to a higher one.
	Generations map[string]Generation `json:"generations,omitempty"`
	// Rejections are what was rolled back, by workload address.
	Rejections map[string]Rejection `json:"rejections,omitempty"`
	Entries    []Entry              `json:"entries,omitempty"`
	// Refusals are settings that turned out not to be writable here at all, so that a
	// plan does not try again and again in the same boot and incarnation.
	Refusals []Refusal `json:"refusals,omitempty"`
	// Unmeasured are the addresses of guards whose workload was changed and that have no
	// verdict since, or were breached when there was nothing left to roll back.
	Unmeasured []string `json:"unmeasured,omitempty"`

	index map[bootKey]int // of Entries; nil when it has to be made again
}

type bootKey struct {
	bootID string
	Key
}

// A Generation is a workload's counter and what it stands for.
type Generation struct {
	Counter uint64 `json:"counter"`
	// Follows is a digest of what the workload's connections follow; a different
	// digest raises the counter.
	Follows string `json:"follows,omitempty"`
	// Rejected is set when the generation was rolled back: what is tried next is another
	// one, also when it is the same.
	Rejected bool `json:"rejected,omitempty"`
}

// A Rejection is what was rolled back of a workload. A daemon does not make it again until
// the spec says something else of the workload or somebody asks for it.
type Rejection struct {
	Spec  string       `json:"spec"`  // digest of what the spec said of the workload (plan.Plan)
	Kinds []param.Kind `json:"kinds"` // of the changes that were undone, sorted
}

// An Entry is one setting that rdmatune manages.
type Entry struct {
	BootID string       `json:"boot_id"`
	Target param.Target `json:"target"`
	ID     param.ID     `json:"id"`
	Index  string       `json:"index,omitempty"`
	// Original is the value before rdmatune's first write in this boot and this
	// incarnation of the target; Written is the last value that it wrote.
	Original param.Value `json:"original"`
	Written  param.Value `json:"written"`
	// Maybe is a value that an interrupted apply may have written after Written.
	Maybe *param.Value `json:"maybe,omitempty"`
	// Workloads are those that want the setting, sorted. What several share is
	// restored with the last.
	Workloads []string `json:"workloads"`
}

// A Refusal is a setting that cannot be written on this node, and why.
type Refusal struct {
	BootID string       `json:"boot_id"`
	Target param.Target `json:"target"`
	ID     param.ID     `json:"id"`
	Index  string       `json:"index,omitempty"`
	Reason string       `json:"reason"`
}

// Refuse remembers that k cannot be written in this boot.
func (d *Document) Refuse(bootID string, k Key, reason string) {
	if _, known := d.Refused(bootID, k); !known {
		d.Refusals = append(d.Refusals, Refusal{bootID, k.Target, k.ID, k.Index, reason})
	}
}

// Refused says why k cannot be written in this boot, if that is known.
func (d *Document) Refused(bootID string, k Key) (reason string, ok bool) {
	for _, r := range d.Refusals {
		if r.BootID == bootID && r.Target.Key() == k.Target && r.ID == k.ID && r.Index == k.Index {
			return r.Reason, true
		}
	}
	return "", false
}

// A Key is what an entry is about.
type Key struct {
	Target param.Target
	ID     param.ID
	Index  string
}

// Key returns what e is about.
func (e Entry) Key() Key { return Key{e.Target.Key(), e.ID, e.Index} }

// Ours reports whether v is a value that rdmatune wrote to the setting.
func (e Entry) Ours(v param.Value) bool {
	return v == e.Written || e.Maybe != nil && v == *e.Maybe
}

// Find returns the entry of k in this boot, or nil. The pointer is good until
// entries are added or dropped.
func (d *Document) Find(bootID string, k Key) *Entry {
	if d.index == nil {
		d.index = make(map[bootKey]int, len(d.Entries))
		for i, e := range d.Entries {
			d.index[bootKey{e.BootID, e.Key()}] = i
		}
	}
	if i, ok := d.index[bootKey{bootID, k}]; ok {
		return &d.Entries[i]
	}
	return nil
}

// Put adds e, or replaces the entry that is about the same thing in the same boot.
func (d *Document) Put(e Entry) {
	if old := d.Find(e.BootID, e.Key()); old != nil {
		*old = e
		return
	}
	d.index[bootKey{e.BootID, e.Key()}] = len(d.Entries)
	d.Entries = append(d.Entries, e)
}

// Reject remembers what was rolled back of a workload.
func (d *Document) Reject(workload string, r Rejection) {
	if d.Rejections == nil {
		d.Rejections = map[string]Rejection{}
	}
	d.Rejections[workload] = r
}

// Keep drops every entry that keep does not want.
func (d *Document) Keep(keep func(Entry) bool) {
	d.Entries = slices.DeleteFunc(d.Entries, func(e Entry) bool { return !keep(e) })
	d.index = nil
}

// Clone returns a deep copy.
func (d *Document) Clone() *Document {
	c := *d
	c.index = nil
	c.Generations = make(map[string]Generation, len(d.Generations))
	maps.Copy(c.Generations, d.Generations)
	c.Rejections = maps.Clone(d.Rejections)
	c.Entries, c.Refusals, c.Unmeasured = slices.Clone(d.Entries), slices.Clone(d.Refusals), slices.Clone(d.Unmeasured)
	for i := range c.Entries {
		c.Entries[i].Workloads = slices.Clone(c.Entries[i].Workloads)
	}
	return &c
}

// Forget drops the entry of k, if there is one: its original was put back.
func (d *Document) Forget(bootID string, k Key) {
	if e := d.Find(bootID, k); e != nil {
		i := d.index[bootKey{bootID, k}]
		last := len(d.Entries) - 1
		d.Entries[i] = d.Entries[last]
		d.index[bootKey{d.Entries[i].BootID, d.Entries[i].Key()}] = i
		delete(d.index, bootKey{bootID, k})
		d.Entries = d.Entries[:last]
	}
}

// Sort puts the entries into the one order in which they are written.
func (d *Document) Sort() {
	d.index = nil
	slices.SortFunc(d.Entries, func(a, b Entry) int {
		return cmp.Or(
			cmp.Compare(a.Target.Kind.Rank(), b.Target.Kind.Rank()),
			cmp.Compare(a.Target.Name, b.Target.Name),
			cmp.Compare(a.Target.Incarnation, b.Target.Incarnation),
			cmp.Compare(a.ID, b.ID), cmp.Compare(a.Index, b.Index), cmp.Compare(a.BootID, b.BootID))
	})
}

// documentName is the document's file in the state directory.
const documentName = "state.json"

// Load reads the document of a state directory; one that is not there is empty.
func Load(dir string) (*Document, error) {
	name := filepath.Join(dir, documentName)
	b, err := smallfile.Read(name, maxDocument, smallfile.Any)
	if errors.Is(err, fs.ErrNotExist) {
		return &Document{Version: formatVersion, Generations: map[string]Generation{}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	d := &Document{}
	if err := json.Unmarshal(b, d); err != nil {
		return nil, fmt.Errorf("read state: %s: %w; put a good copy in its place, or move it away and lose the originals that it holds", name, err)
	}
	if d.Version < 1 || d.Version > formatVersion {
		return nil, fmt.Errorf("read state: %s has format version %d; this rdmatune reads 1 to %d", name, d.Version, formatVersion)
	}
	d.Entries = slices.Clone(d.Entries) // a list that grew while it was read has room that nobody needs
	if d.Generations == nil {
		d.Generations = map[string]Generation{}
	}
	return d, nil
}

// Save replaces the document atomically and durably, and raises its serial.
func (d *Document) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	if d.Lineage == "" {
		id := make([]byte, 16)
		rand.Read(id) // never fails
		d.Lineage = hex.EncodeToString(id)
	}
	d.Version = formatVersion
	d.Serial++
	d.Sort()
	b, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	if err := Unreserve(dir); err != nil {
		return err
	}
	if err := renameio.WriteFile(filepath.Join(dir, documentName), append(b, '\n'), 0o600, renameio.WithTempDir(dir)); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return syncDir(dir)
}

// reserveName is a file that holds the place of the next document.
const reserveName = "state.reserve"

// Reserve takes the disk space that saving d with some more entries will need, so
// that a full disk is found out before anything is changed. Save gives it back.
func (d *Document) Reserve(dir string, more int) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("reserve space for the state: %w", err)
	}
	b, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return fmt.Errorf("reserve space for the state: %w", err)
	}
	const perEntry = 768 // bytes of one entry as it is written, generously
	b = append(b, make([]byte, more*perEntry+4096)...)
	dropTorn(dir)
	if err := renameio.WriteFile(filepath.Join(dir, reserveName), b, 0o600, renameio.WithTempDir(dir)); err != nil {
		return fmt.Errorf("reserve space for the state: %w", err)
	}
	return nil
}

// dropTorn removes what writers of the state have left that were killed: a file that was
// to replace one of the same name. There is no other writer, as the caller has the lock.
func dropTorn(dir string) {
	for _, name := range []string{documentName, reserveName} {
		torn, _ := filepath.Glob(filepath.Join(dir, "."+name+"*")) // the pattern is a good one
		for _, t := range torn {
			_ = os.Remove(t) // it takes space, and nothing else
		}
	}
}

// Unreserve gives back what Reserve took.
func Unreserve(dir string) error {
	if err := os.Remove(filepath.Join(dir, reserveName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("give back the state's reserved space: %w", err)
	}
	return nil
}

// syncDir makes a rename in dir durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}
