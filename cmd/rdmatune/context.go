package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/internal/rdmanl"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/spec"
	"github.com/rdmatune/rdmatune/state"
)

// describe is the experiment's record before anything has happened.
func (s *session) describe(kind experiment.Kind, p *planning) experiment.Experiment {
	now := time.Now()
	e := experiment.Experiment{
		ID: experiment.NewID(now), Time: now.UTC(), Kind: kind, Version: spec.Version,
		Simulated: p.facts.Simulated, Node: s.identity(p.facts, ""),
	}
	if p.spec != nil {
		e.SpecRoot, e.SpecDigest, e.GitCommit = p.spec.Root, p.spec.Digest, gitCommit(p.spec.Root)
	} else {
		e.SpecRoot = p.doc.SpecRoot
	}
	return e
}

// identity is the node as an experiment records it, with the driver and firmware of
// a device.
func (s *session) identity(f *node.Facts, device string) experiment.Node {
	text := func(p *string) string {
		if p == nil {
			return ""
		}
		return *p
	}
	n := experiment.Node{Ref: s.node.Ref(), Hostname: text(f.Hostname), Kernel: text(f.Kernel), BootID: s.bootID, Virtualised: text(f.Virtualised)}
	for _, r := range f.RDMA {
		if r.Name == device {
			n.Driver, n.Firmware = text(r.Driver), text(r.Firmware)
		}
	}
	return n
}

// switches returns what the processes of a workload report of a generation's switches.
func (s *session) switches(ctx context.Context, workload string, generation uint64) []experiment.Switch {
	list, err := control.List(ctx, s.node.RunDir())
	if err != nil {
		return nil // the switch itself has been reported; this is its statistics
	}
	var out []experiment.Switch
	for _, p := range list {
		if p.Workload != workload {
			continue
		}
		for _, c := range p.Conns {
			for _, w := range c.Switches {
				if w.Generation == generation {
					out = append(out, experiment.Switch{Workload: workload, PID: p.PID, Connection: strconv.FormatUint(c.ID, 10), Generation: w.Generation,
						Outcome: w.Outcome, Pause: w.Pause, Drained: int64(w.Drained), Held: int64(w.Held)})
				}
			}
		}
	}
	return out
}

// gitCommit is the commit of the spec's repository, with "-dirty" when its tree
// differs, and "" when there is none.
func gitCommit(root string) string {
	dir := root
	if st, err := os.Stat(root); err == nil && !st.IsDir() {
		dir = filepath.Dir(root)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	git := func(args ...string) (string, error) {
		// Hooks and monitors of a repository are not run: this may be root.
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", dir, "-c", "core.fsmonitor=false"}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	commit, err := git("rev-parse", "--verify", "HEAD")
	if err != nil {
		return ""
	}
	if changes, err := git("status", "--porcelain", "--", "."); err != nil || changes != "" {
		commit += "-dirty"
	}
	return commit
}

// maxManaged bounds the managed settings that a measurement records.
const maxManaged = 5000

// surroundings adds to a measurement's record what can explain it: the node's facts,
// the spec in force and every managed setting as it is now, and who else has queue
// pairs on the device.
func (s *session) surroundings(ctx context.Context, e *experiment.Experiment, facts *node.Facts, device string, before node.Activity) {
	e.Explain = s.node.Explain(facts, device)
	e.Observed = s.node.Observed(facts, device, before)
	if others := s.otherUsers(ctx, device); others != "" {
		e.Observed["nic.other_queue_pairs"] = others
	}
	doc, err := state.Load(s.node.StateDir())
	if err != nil {
		e.Detail.Notes = append(e.Detail.Notes, "the managed settings are not known: "+err.Error())
		return
	}
	if len(doc.Entries) == 0 {
		return
	}
	e.SpecRoot, e.SpecDigest, e.GitCommit = doc.SpecRoot, doc.SpecDigest, doc.GitCommit
	ctx = drivers.Look(ctx)
	found := map[param.Target]*param.Observed{}
	for _, x := range doc.Entries {
		if x.BootID != s.bootID || len(x.Workloads) == 0 || len(e.Settings) == maxManaged {
			continue
		}
		t := x.Target.Key()
		if _, asked := found[t]; !asked {
			found[t] = nil
			if o, ok, err := s.drivers.Reread(ctx, t); err == nil && ok {
				found[t] = &o
			}
		}
		if found[t] == nil {
			continue // gone, with its process
		}
		if have, ok := drivers.Lookup(found[t].Settings, x.ID, x.Index); ok {
			row, _ := param.Lookup(x.ID)
			attr := row.Attr
			if x.Index != "" {
				attr += "[" + x.Index + "]"
			}
			e.Settings = append(e.Settings, experiment.Setting{
				Address: plan.Address(x.Workloads[0], x.Target), Attr: attr, Before: param.Format(x.ID, x.Original), Value: param.Format(x.ID, have.Value),
			})
		}
	}
}

// otherUsers names the processes besides this one that have queue pairs on a device,
// "" when there are none or the node does not tell.
func (s *session) otherUsers(ctx context.Context, device string) string {
	t, err := s.node.Resources(ctx)
	if err != nil {
		return ""
	}
	var tids []int
	for _, q := range t.QPs {
		if q.Device == device && q.TID != 0 {
			tids = append(tids, q.TID)
		}
	}
	processes, err := s.node.Procs().Processes(tids)
	if err != nil {
		return ""
	}
	return otherUsers(t, device, os.Getpid(), processes)
}

// otherUsers is the same of a table; the kernel names the thread that made a queue
// pair, and processes says of which process it is.
func otherUsers(t *rdmanl.Table, device string, self int, processes map[int]int) string {
	count := map[string]int{}
	for _, q := range t.QPs {
		if q.Device != device || q.Type == "GSI" || q.Type == "SMI" {
			continue // those of the port itself
		}
		who := "a process that the kernel does not name"
		if q.Kernel != "" {
			who = "the kernel's " + q.Kernel
		} else if q.TID != 0 {
			pid := q.TID
			if p, ok := processes[pid]; ok {
				pid = p
			}
			if pid == self {
				continue
			}
			who = "process " + strconv.Itoa(pid)
		}
		count[who]++
	}
	var parts []string
	for _, who := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d of %s", count[who], who))
	}
	return strings.Join(parts, ", ")
}
