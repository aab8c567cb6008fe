package sysfs

import (
	"strings"
	"sync"
)

// Faults makes chosen writes fail, so that a test can break every step of an apply
// in turn. The zero Faults, and a nil one, let everything pass.
type Faults struct {
	mu    sync.Mutex
	rules []*fault // guarded by mu
}

type fault struct {
	under string
	left  int // writes until the failing one
	err   error
}

// FailWrite makes the nth write from now (1 is the next) at or below path under
// fail with err, once. It returns f.
func (f *Faults) FailWrite(under string, nth int, err error) *Faults {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, &fault{under: clean(under), left: nth, err: err})
	return f
}

// Check counts a write to name and returns the error it is to fail with. Writes
// that go to no file (an affinity by system call, a netlink request) are checked by
// whoever makes them, under a name of the same form.
func (f *Faults) Check(name string) error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rules {
		if name != r.under && r.under != "/" && !strings.HasPrefix(name, r.under+"/") {
			continue
		}
		if r.left--; r.left == 0 {
			return r.err
		}
	}
	return nil
}
