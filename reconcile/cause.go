package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/plan"
	"github.com/rdmatune/rdmatune/reconcile/watch"
)

const (
	keptEvents = 512              // the last ones, in which causes are looked for
	causeTime  = 10 * time.Second // that an event may lie back
)

// causes are the last events.
type causes struct{ events []watch.Event }

func (c *causes) add(e watch.Event) {
	if e.Source == watch.Processes && e.What != "lost" {
		return // a start rewrites nothing, and thousands a second would push out the rest
	}
	if len(c.events) >= keptEvents {
		c.events = append(c.events[:0], c.events[keptEvents/2:]...)
	}
	c.events = append(c.events, e)
}

// latest returns the latest event that is wanted, or nil.
func (c *causes) latest(now time.Time, wanted func(watch.Event) bool) *watch.Event {
	for i := len(c.events) - 1; i >= 0; i-- {
		if e := &c.events[i]; now.Sub(e.When) < causeTime && wanted(*e) {
			return e
		}
	}
	return nil
}

// settingFiles are the files that hold each target's settings.
type settingFiles map[param.Target][]settingFile

// A settingFile is the file that holds one setting of a target. A node has thousands of
// them for years: a list of one or two takes a tenth of the memory of a map.
type settingFile struct {
	id   param.ID
	path string
}

// of returns the paths of a target's files, only of id unless that is "".
func (f settingFiles) of(t param.Target, id param.ID) (paths []string) {
	for _, file := range f[t.Key()] {
		if id == "" || file.id == id {
			paths = append(paths, file.path)
		}
	}
	return paths
}

// find tells who is most likely behind a change: the process that wrote to the setting's
// file, else what the kernel has done to the device, else whoever uses an interface on
// which the kernel names nobody.
func (c *causes) find(now time.Time, ch plan.Change, files settingFiles, netdevs func(function string) []string) cause {
	target := ch.Target
	wrote := func(paths []string) *watch.Event {
		return c.latest(now, func(e watch.Event) bool {
			return e.Source == watch.Writes && e.PID > 0 && slices.Contains(paths, e.Subject)
		})
	}
	if e := wrote(files.of(target, ch.ID)); e != nil {
		return cause{writer: writer(*e), known: true, when: e.When}
	}
	if target.Kind == param.Frequency {
		// The kernel keeps a policy's limits in order: who lowers the upper one below the
		// lower one changes both.
		if e := wrote(files.of(target, "")); e != nil {
			return cause{writer: writer(*e) + " through " + last(e.Subject), when: e.When}
		}
	}
	names := []string{target.Name}
	switch target.Kind {
	case param.IRQ:
		function, _, _ := strings.Cut(target.Name, "/")
		names = append([]string{function, "cpu"}, netdevs(function)...)
	case param.Frequency, param.Pinning:
		names = []string{"cpu"} // CPUs that go offline take interrupts and threads with them
	}
	about := func(e watch.Event) bool {
		for _, n := range names {
			if e.Source == watch.Links && e.Subject == n || e.Source == watch.Kernel && strings.Contains(e.Subject, "/"+n) {
				return true
			}
		}
		return false
	}
	if e := c.latest(now, about); e != nil {
		return cause{writer: fmt.Sprintf("the kernel (%s of %s)", e.What, last(e.Subject)), kernel: true, when: e.When}
	}
	if target.Kind == param.Coalescing {
		if e := c.latest(now, func(e watch.Event) bool { return e.Source == watch.Ethtool && e.Subject == target.Name }); e != nil {
			return cause{writer: "a program that uses ethtool netlink (the kernel does not say which)", when: e.When}
		}
	}
	return cause{writer: "somebody unknown", when: now}
}

// last is the last step of a path.
func last(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

func writer(e watch.Event) string {
	switch {
	case e.Command != "":
		return fmt.Sprintf("pid %d %q", e.PID, e.Command)
	case e.Comm != "":
		return fmt.Sprintf("pid %d %q", e.PID, e.Comm)
	}
	return fmt.Sprintf("pid %d (gone)", e.PID)
}
