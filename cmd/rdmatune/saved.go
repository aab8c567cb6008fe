package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/google/renameio/v2"

	"github.com/rdmatune/rdmatune/internal/smallfile"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/spec"
)

// identities are the facts that a saved plan depends on beside the changes' values.
func identities(f *node.Facts) map[string]string {
	out := map[string]string{}
	add := func(path string, v *string) {
		if v != nil {
			out[path] = *v
		}
	}
	add("hostname", f.Hostname)
	add("kernel", f.Kernel)
	for _, r := range f.RDMA {
		add("rdma."+r.Name+".pci", r.PCI)
		add("rdma."+r.Name+".driver", r.Driver)
		add("rdma."+r.Name+".firmware", r.Firmware)
	}
	return out
}

// savePlan writes a plan that apply can be given. It is for its owner alone: it
// says what the node has.
func (o *options) savePlan(name string, s *session, p *planning, f specFlags, force bool) error {
	saved := plan.Saved{Node: o.node, BootID: s.bootID, Force: force, Identities: identities(p.facts), Changes: p.plan.Dependable()}
	if p.spec != nil {
		saved.SpecRoot, saved.SpecDigest = p.spec.Root, p.spec.Digest
	}
	for _, v := range f.vars {
		sv := plan.SavedVar{Text: v.Text}
		if v.Text == "" {
			abs, err := filepath.Abs(v.File)
			if err != nil {
				return err
			}
			sv.File = abs
		}
		saved.Vars = append(saved.Vars, sv)
	}
	var b bytes.Buffer
	if err := saved.Save(&b); err != nil {
		return err
	}
	if err := renameio.WriteFile(name, b.Bytes(), 0o600); err != nil {
		var errno syscall.Errno
		if errors.As(err, &errno) {
			err = errno // the path in the error is a temporary file's
		}
		return fmt.Errorf("save plan to %s: %w", name, err)
	}
	flags := ""
	if o.node != "local" {
		flags += " --node " + o.node
	}
	if o.stateDir != "" {
		flags += " --state-dir " + o.stateDir
	}
	printf(os.Stdout, "\nSaved the plan to %s. Apply exactly this with: rdmatune apply%s %s\n", name, flags, name)
	return nil
}

// checkOut refuses to save a plan over something that is none.
func checkOut(name string) error {
	if err := replaceable(name); err != nil {
		return err
	}
	if st, err := os.Lstat(name); err != nil || st.Size() == 0 {
		return nil // it is not there, or nothing is lost
	}
	if saved, err := openSaved([]string{name}); saved == nil {
		return errors.Join(err, fmt.Errorf("--out %s: the file is there and is no saved plan", name))
	}
	return nil
}

// openSaved returns the saved plan of a command's arguments, nil when they name a
// spec.
func openSaved(args []string) (*plan.Saved, error) {
	if len(args) == 0 || strings.HasSuffix(args[0], ".hcl") {
		return nil, nil
	}
	f, err := smallfile.Open(args[0], smallfile.Any)
	if err != nil {
		return nil, nil // loading the spec says what is wrong
	}
	defer f.Close()
	saved, err := plan.LoadSaved(f)
	if errors.Is(err, plan.ErrNotSaved) && !strings.HasSuffix(args[0], ".plan") && !cutShort(f) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", args[0], err)
	}
	return saved, nil
}

// cutShort reports whether a file is empty or begins as a saved plan does and no spec
// can: what is left of a plan that was not copied whole.
func cutShort(f io.ReaderAt) bool {
	first := make([]byte, 1)
	n, err := f.ReadAt(first, 0)
	return n == 0 && err == io.EOF || n == 1 && first[0] == '{'
}

// loadSaved loads the spec that a saved plan was made of, nil when it restores
// everything.
func (o *options) loadSaved(s *plan.Saved) (*spec.Spec, error) {
	if s.Node != o.node {
		return nil, fmt.Errorf("the plan was made for the node %s, not for %s", s.Node, o.node)
	}
	if s.SpecRoot == "" {
		return nil, nil
	}
	var f specFlags
	for _, v := range s.Vars {
		f.vars = append(f.vars, spec.VarSource{Text: v.Text, File: v.File})
	}
	sp, _, err := o.load([]string{s.SpecRoot}, f, false)
	return sp, err
}

// checkSaved refuses a saved plan of which something has moved.
func checkSaved(saved *plan.Saved, s *session, p *planning) error {
	digest := ""
	if p.spec != nil {
		digest = p.spec.Digest
	}
	moved := saved.Moved(p.plan, s.bootID, digest, identities(p.facts))
	if len(moved) == 0 {
		return nil
	}
	if more := len(moved) - 10; more > 0 {
		moved = append(moved[:10], fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("the saved plan is stale: nothing was changed\n  %s\nPlan again", strings.Join(moved, "\n  "))
}
