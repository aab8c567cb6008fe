package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/param"
)

// savedKind marks a saved plan, so that it is not taken for a spec.
const savedKind = "rdmatune saved plan"

// maxSaved bounds what is read of a saved plan.
const maxSaved = 64 << 20

// A Saved is a plan on disk: how to make it again, and what it depends on. Applying
// it plans anew and refuses, by name, when something that it depends on has moved.
// Processes come and go, so they are not among it.
type Saved struct {
	Kind          string `json:"kind"`
	FormatVersion string `json:"format_version"`

	Node   string `json:"node"` // as --node was given
	BootID string `json:"boot_id"`

	SpecRoot   string     `json:"spec_root,omitempty"` // "" restores everything
	SpecDigest string     `json:"spec_digest,omitempty"`
	Vars       []SavedVar `json:"vars,omitempty"`
	Force      bool       `json:"force,omitempty"`

	// Identities are facts by path, such as rdma.mlx5_0.firmware.
	Identities map[string]string `json:"identities"`
	Changes    []param.Change    `json:"changes"`
}

// A SavedVar is one --var or --var-file of the command line.
type SavedVar struct {
	Text string `json:"text,omitempty"`
	File string `json:"file,omitempty"`
}

// Save writes s as JSON.
func (s Saved) Save(w io.Writer) error {
	s.Kind, s.FormatVersion = savedKind, FormatVersion
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// ErrNotSaved says that a file holds no saved plan.
var ErrNotSaved = errors.New("not a saved plan")

// LoadSaved reads a saved plan. A text that is none is ErrNotSaved.
func LoadSaved(r io.Reader) (*Saved, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxSaved+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxSaved || len(b) == 0 || b[0] != '{' {
		return nil, ErrNotSaved
	}
	var s Saved
	if err := json.Unmarshal(b, &s); err != nil || s.Kind != savedKind {
		return nil, ErrNotSaved
	}
	if major, _, _ := strings.Cut(s.FormatVersion, "."); major != "1" {
		return nil, fmt.Errorf("the saved plan has format version %.20q; this rdmatune reads 1", s.FormatVersion)
	}
	return &s, nil
}

// Dependable returns the changes of p that a saved plan depends on.
func (p *Plan) Dependable() []param.Change {
	out := []param.Change{}
	for _, c := range p.Changes {
		if c.Target.Kind != param.Pinning && (c.Target.Kind != param.Hint || isPublished(c.Target)) {
			c.Target.Label = ""
			out = append(out, c.Change)
		}
	}
	return out
}

// Moved says what a saved plan depends on and is not as it was. now is the plan made
// anew; identities are the facts as they are.
func (s *Saved) Moved(now *Plan, bootID, specDigest string, identities map[string]string) []string {
	var out []string
	if s.BootID != bootID {
		out = append(out, "the node was booted since")
	}
	if s.SpecDigest != specDigest {
		out = append(out, "the spec "+s.SpecRoot+" or its variables were changed")
	}
	for _, path := range slices.Sorted(maps.Keys(s.Identities)) {
		if got, ok := identities[path]; !ok {
			out = append(out, path+" is gone")
		} else if got != s.Identities[path] {
			out = append(out, fmt.Sprintf("%s was %q and is %q", path, s.Identities[path], got))
		}
	}
	type key struct {
		workload string
		target   param.Target
		id       param.ID
		index    string
	}
	index := func(cs []param.Change) map[key]param.Change {
		m := map[key]param.Change{}
		for _, c := range cs {
			m[key{c.Workload, c.Target.Key(), c.ID, c.Index}] = c
		}
		return m
	}
	current := now.Dependable()
	planned, found := index(s.Changes), index(current)
	name := func(c param.Change) string { return Address(c.Workload, c.Target) + " " + attr(c.ID) }
	for _, c := range s.Changes {
		f, ok := found[key{c.Workload, c.Target.Key(), c.ID, c.Index}]
		switch {
		case !ok:
			out = append(out, fmt.Sprintf("%s: its change %s -> %s is no longer to be made", name(c), param.Format(c.ID, c.Old), param.Format(c.ID, c.New)))
		case f.Old != c.Old:
			out = append(out, fmt.Sprintf("%s was %s and is %s", name(c), param.Format(c.ID, c.Old), param.Format(c.ID, f.Old)))
		case f.New != c.New:
			out = append(out, fmt.Sprintf("%s was to become %s and would now become %s", name(c), param.Format(c.ID, c.New), param.Format(c.ID, f.New)))
		}
	}
	for _, c := range current {
		if _, ok := planned[key{c.Workload, c.Target.Key(), c.ID, c.Index}]; !ok {
			out = append(out, fmt.Sprintf("%s: %s -> %s was not planned", name(c), param.Format(c.ID, c.Old), param.Format(c.ID, c.New)))
		}
	}
	return out
}
