package reconcile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"

	"github.com/rdmatune/rdmatune/apply"
	"github.com/rdmatune/rdmatune/internal/smallfile"
	"github.com/rdmatune/rdmatune/spec"
)

// The copy of the last good spec in the state directory, for a start at which the spec's
// files are invalid.
const (
	lastGoodName   = "lastgood.json"
	lastGoodFormat = 1
	maxLastGood    = 16 << 20 // bytes; real specs are a few KiB, and the copy a third more
)

// A lastGood is the spec that was kept last.
type lastGood struct {
	Format int    `json:"format"`
	Digest string `json:"digest"` // of the spec
	// Before is the digest of the spec that was in force when this one was loaded. A state
	// of a third spec tells that another program has applied it since: this one is old.
	Before string `json:"before,omitempty"`
	// Destroyed is the state's when this spec was loaded: with a higher one, the originals were
	// restored for good since.
	Destroyed uint64      `json:"destroyed,omitempty"`
	Loaded    time.Time   `json:"loaded,omitzero"` // from its files
	Source    spec.Source `json:"source"`
}

// errNoLastGood: no spec was kept yet.
var errNoLastGood = errors.New("there is no copy of the last good spec")

// keepLastGood writes the copy of the spec that is kept, unless it is there. One that cannot
// be written is told once for each spec, and tried again after the next pass.
func (l *Loop) keepLastGood() {
	if l.c.DryRun || l.spec == nil || l.copied == l.spec.Digest {
		return
	}
	c := lastGood{Format: lastGoodFormat, Digest: l.spec.Digest, Source: l.spec.Source(), Loaded: l.loaded}
	if l.doc != nil {
		c.Destroyed = l.doc.Destroyed
	}
	if l.doc != nil && l.doc.SpecDigest != c.Digest {
		c.Before = l.doc.SpecDigest
	}
	err := c.write(l.c.Node.StateDir())
	if err != nil && l.uncopied != c.Digest {
		l.uncopied = c.Digest
		l.log.Warn("a restart will not know this spec if its files are invalid then", "error", err)
	}
	if err == nil || errors.Is(err, errTooLarge) { // it does not become smaller
		l.copied = c.Digest
	}
}

// errTooLarge: the spec has more than is copied.
var errTooLarge = errors.New("too large to be copied")

func (c lastGood) write(dir string) error {
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if len(b) > maxLastGood {
		return fmt.Errorf("%w: %d bytes; the most is %d", errTooLarge, len(b), maxLastGood)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(dir, lastGoodName), b, 0o600, renameio.WithTempDir(dir))
}

// heldSpec returns the last good spec of an earlier run, when it is one of the spec that
// was asked for by path, and neither was another applied nor all restored since. It says when
// that spec was loaded from its files, zero for a copy that does not.
func (l *Loop) heldSpec(path string) (_ *spec.Spec, loaded time.Time, err error) {
	name := filepath.Join(l.c.Node.StateDir(), lastGoodName)
	c, err := readLastGood(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, loaded, errNoLastGood
	case err != nil:
		return nil, loaded, err
	case c.Source.Path != path:
		return nil, loaded, fmt.Errorf("%s: it is of another spec, %q", name, c.Source.Path)
	}
	if now := l.doc.SpecDigest; now != "" && now != c.Digest && now != c.Before {
		return nil, loaded, fmt.Errorf("%s: another version of the spec was applied since", name)
	}
	if l.doc.Destroyed > c.Destroyed {
		return nil, loaded, fmt.Errorf("%s: rdmatune destroy has restored the originals since", name)
	}
	sp, diags := c.Source.Load()
	switch {
	case diags.HasErrors():
		return nil, loaded, fmt.Errorf("%s: %s", name, firstError(diags))
	case sp.Digest != c.Digest:
		return nil, loaded, fmt.Errorf("%s: damaged: its spec is not the one that was kept", name)
	case sp.Empty():
		return nil, loaded, fmt.Errorf("%s: its spec has no workload", name)
	}
	if err := apply.CheckRoot(l.doc, sp.Root, l.c.Replace); err != nil {
		return nil, loaded, err
	}
	return sp, c.Loaded, nil
}

// readLastGood reads a copy that is a file of this user alone.
func readLastGood(name string) (c lastGood, err error) {
	b, err := smallfile.Read(name, maxLastGood, smallfile.Private)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("%s: damaged: %w", name, err)
	}
	if c.Format != lastGoodFormat {
		return c, fmt.Errorf("%s: it has format %d; this rdmatune knows %d", name, c.Format, lastGoodFormat)
	}
	return c, nil
}
