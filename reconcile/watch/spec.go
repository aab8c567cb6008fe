package watch

import (
	"errors"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/printable"
)

// openSpec hears of every change of what the spec's paths lead to.
func openSpec(w *Watcher, c Config) (source, error) {
	t, err := w.openTree(Spec, func(h happened) {
		w.q.put(Spec, "change", printable.Line(h.root))
	})
	if err != nil {
		return nil, err
	}
	w.spec = t
	return t, t.set(c.Spec)
}

// socketsDir is where the control sockets are in the run directory, as package control
// has it.
const socketsDir = "transports"

// openTransports hears of control sockets that come and go.
func openTransports(w *Watcher, c Config) (source, error) {
	if c.RunDir == "" {
		return nil, errors.New("no run directory")
	}
	t, err := w.openTree(Transports, func(h happened) {
		switch {
		case !h.end:
			w.q.put(Transports, "change", printable.Line(h.root))
		case h.mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
			w.q.put(Transports, "add", printable.Line(h.path))
		case h.mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
			w.q.put(Transports, "remove", printable.Line(h.path))
		}
	})
	if err != nil {
		return nil, err
	}
	return t, t.set([]string{filepath.Join(c.RunDir, socketsDir)})
}
