package watch

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// spare is how many descriptors the process has besides those of Files: of its log, its
// sockets, what it opens for a moment, and one for each write that fanotify tells of.
const spare = 1024

// raiseLimit lets the process have files descriptors besides others, as far as it may:
// what is missing then shows when a file cannot be opened.
func raiseLimit(files int) {
	var limit unix.Rlimit
	need := uint64(files + spare)
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur >= need {
		return
	}
	raised := unix.Rlimit{Cur: need, Max: max(limit.Max, need)}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) == nil {
		return
	}
	// Only a privileged process may raise the hard limit.
	raised = unix.Rlimit{Cur: min(need, limit.Max), Max: limit.Max}
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &raised)
}

// maxFailures is how many errors of one kind are told.
const maxFailures = 8

// failures are errors about single files, of which the first few are kept.
type failures struct {
	first []error
	more  int
}

func (f *failures) add(err error) {
	switch {
	case err == nil:
	case len(f.first) < maxFailures:
		f.first = append(f.first, err)
	default:
		f.more++
	}
}

func (f *failures) err() error {
	if f.more > 0 {
		return errors.Join(append(f.first, fmt.Errorf("and %d more like these", f.more))...)
	}
	return errors.Join(f.first...)
}
