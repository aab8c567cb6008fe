package node

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/rdmatune/rdmatune/internal/ethnl"
	"github.com/rdmatune/rdmatune/internal/sysfs"
)

// A Snapshot is what was read of a node since StartSnapshot: a captured tree in the
// making.
type Snapshot struct {
	node     *Node
	recorder *sysfs.Recorder
}

// StartSnapshot begins a snapshot. What is read of the node from now on, through FS
// as it is returned from now on too, becomes part of it.
func (n *Node) StartSnapshot() *Snapshot {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := &Snapshot{node: n}
	n.fs, s.recorder = n.fs.Record()
	return s
}

// Coalescing adds the interrupt coalescing of a netdev, which is in no file. A netdev
// that has none adds nothing.
func (s *Snapshot) Coalescing(netdev string) error {
	c, err := s.node.Coalesce(netdev)
	if errors.Is(err, ethnl.ErrNotSupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("netdev %s: %w", netdev, err)
	}
	words, switches := coalesceFields(&c)
	dir := coalesceDir(netdev) + "/"
	for name, field := range words {
		if *field != nil {
			s.recorder.Add(dir+name, strconv.FormatUint(uint64(**field), 10)+"\n")
		}
	}
	for name, field := range switches {
		if *field != nil {
			s.recorder.Add(dir+name, map[bool]string{true: "on", false: "off"}[**field]+"\n")
		}
	}
	return nil
}

// Write writes the snapshot as a .tar.gz that Open takes.
func (s *Snapshot) Write(w io.Writer) error {
	zw := gzip.NewWriter(w)
	return errors.Join(s.recorder.WriteTar(zw), zw.Close())
}
