package soak

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rdmatune/rdmatune/state"
)

// compare takes a sample of an incarnation and compares it with its first.
func (s *soak) compare(ctx context.Context) {
	d := s.w.d
	var before sample
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Second) {
		now, err := d.look(s.done)
		if err != nil {
			s.fail(ctx, err)
		}
		n, err := metric(ctx, "go_goroutines")
		if err != nil {
			s.fail(ctx, err)
		}
		now.goroutines = int(n)
		late := time.Now().After(deadline)
		if err := s.keptFiles(now.kept); err != nil {
			if late {
				s.fail(ctx, err)
			}
			continue // a pass may be under way
		}
		calm := now.fds == before.fds && now.goroutines == before.goroutines
		before = now
		if !calm && !late {
			continue
		}
		if len(d.samples) == 0 {
			d.samples = append(d.samples, now)
			return
		}
		// Less than before is no leak: what the first sample saw too much of, it saw twice.
		was := &d.samples[0]
		if now.fds <= was.fds && now.goroutines <= was.goroutines {
			was.fds, was.goroutines = now.fds, now.goroutines
			d.samples = append(d.samples, now)
			if now.event-was.event >= longLived {
				s.leaks++
			}
			s.t.Logf("pid %d, event %d to %d: RSS %d to %d KiB, descriptors %d (and %d of settings), threads %d to %d, goroutines %d", d.pid(), was.event, now.event,
				was.rss, now.rss, now.fds, len(now.kept), was.threads, now.threads, now.goroutines)
			return
		}
		if late {
			s.fail(ctx, fmt.Errorf("it leaks: event %d: %d descriptors, %d goroutines; event %d: %d, %d; then %v, now %v", was.event, was.fds, was.goroutines,
				now.event, now.fds, now.goroutines, was.files, now.files))
		}
	}
}

// keptFiles holds the settings' files that the daemon keeps open against the state: each
// once, and none of a target of which nothing is managed.
func (s *soak) keptFiles(kept []string) error {
	doc, err := state.Load(s.w.stateDir)
	if err != nil {
		return err
	}
	groups := map[string]bool{}
	for _, e := range doc.Entries {
		x, _, err := s.w.entry(e)
		if err != nil {
			return err
		}
		groups[x.group()] = true
	}
	managed := map[string]bool{}
	for _, x := range s.w.settings() {
		if groups[x.group()] {
			managed[s.w.k.file(x)] = true
		}
	}
	slices.Sort(kept)
	for i, f := range kept {
		if i > 0 && f == kept[i-1] {
			return fmt.Errorf("the daemon has %s open twice", f)
		}
		if !managed[f] {
			return fmt.Errorf("the daemon has %s open, which it does not manage", f)
		}
	}
	return nil
}
