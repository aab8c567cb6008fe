package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/experiment"
	"github.com/rdmatune/rdmatune/internal/rdmanl"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/state"
)

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
