package watch

import (
	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/ethnl"
	"github.com/rdmatune/rdmatune/internal/printable"
)

// ethtoolRoom holds a few thousand notifications.
const ethtoolRoom = 1 << 20

func openEthtool(w *Watcher, _ Config) (source, error) {
	group, err := ethnl.Monitor()
	if err != nil {
		return nil, err
	}
	s, err := w.listen(Ethtool, unix.NETLINK_GENERIC, 0, ethtoolRoom)
	if err != nil {
		return nil, err
	}
	if err := s.set(unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, int(group.ID)); err != nil {
		s.f.Close()
		return nil, err
	}
	s.handle = func(b []byte) {
		for h, payload := range messages(b) {
			if h.typ != group.Family {
				continue
			}
			if netdev, err := ethnl.Changed(payload); err == nil {
				w.q.put(Ethtool, "change", printable.Line(netdev))
			}
		}
	}
	return s, nil
}
