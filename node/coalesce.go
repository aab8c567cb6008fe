package node

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmatune/rdmatune/internal/ethnl"
	"github.com/rdmatune/rdmatune/internal/printable"
)

// coalesceDir is where a node at rest has the coalescing of netdev, one file for
// each parameter that its driver offers. No kernel has such a directory: coalescing
// is reached by netlink alone.
func coalesceDir(netdev string) string { return "/ethtool/" + netdev + "/coalesce" }

// coalesceFields tells which file holds which field.
func coalesceFields(c *ethnl.Coalesce) (words map[string]**uint32, switches map[string]**bool) {
	return map[string]**uint32{
			"rx_usecs": &c.RXUsecs, "tx_usecs": &c.TXUsecs,
			"rx_frames": &c.RXFrames, "tx_frames": &c.TXFrames,
		}, map[string]**bool{
			"adaptive_rx": &c.AdaptiveRX, "adaptive_tx": &c.AdaptiveTX,
		}
}

// Coalesce returns the interrupt coalescing of netdev; fields that its driver does
// not offer are nil. A driver that has none, or a capture that does not tell, is
// ethnl.ErrNotSupported.
func (n *Node) Coalesce(netdev string) (ethnl.Coalesce, error) {
	if n.kind == Local {
		conn, err := ethnl.Dial()
		if err != nil {
			return ethnl.Coalesce{}, err
		}
		defer conn.Close()
		return conn.Get(netdev)
	}
	if err := netdevName(netdev); err != nil {
		return ethnl.Coalesce{}, err
	}
	dir := coalesceDir(netdev)
	if !n.FS().IsDir(dir) {
		return ethnl.Coalesce{}, fmt.Errorf("%s: this %s node does not tell its coalescing: %w", netdev, n.kind, ethnl.ErrNotSupported)
	}
	var c ethnl.Coalesce
	words, switches := coalesceFields(&c)
	for file, field := range words {
		v, err := n.FS().ReadInt(dir + "/" + file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || v < 0 || v > 1<<32-1 {
			return ethnl.Coalesce{}, errors.Join(fmt.Errorf("%s: %s is not a number of 32 bits", netdev, file), err)
		}
		*field = new(uint32(v))
	}
	for file, field := range switches {
		s, err := n.FS().ReadString(dir + "/" + file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || s != "on" && s != "off" {
			return ethnl.Coalesce{}, errors.Join(fmt.Errorf("%s: %s is neither on nor off", netdev, file), err)
		}
		*field = new(s == "on")
	}
	return c, nil
}

// SetCoalesce sets the fields of want that are not nil. It is refused whole when
// the driver does not offer one of them.
func (n *Node) SetCoalesce(netdev string, want ethnl.Coalesce) error {
	if err := n.check("/ethtool/" + netdev); err != nil {
		return fmt.Errorf("%s: set coalescing: %w", netdev, err)
	}
	if n.kind == Local {
		conn, err := ethnl.Dial()
		if err != nil {
			return err
		}
		defer conn.Close()
		return conn.Set(netdev, want)
	}
	if err := netdevName(netdev); err != nil {
		return err
	}
	values := map[string]string{}
	words, switches := coalesceFields(&want)
	for file, field := range words {
		if *field != nil {
			values[file] = strconv.FormatUint(uint64(**field), 10)
		}
	}
	for file, field := range switches {
		if *field != nil {
			values[file] = map[bool]string{true: "on", false: "off"}[**field]
		}
	}
	for file := range values {
		if !n.FS().Exists(coalesceDir(netdev) + "/" + file) {
			return fmt.Errorf("%s: set coalescing: %s: %w", netdev, file, ethnl.ErrNotSupported)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(values)) {
		if err := n.fs.WriteFile(coalesceDir(netdev)+"/"+file, values[file]); err != nil {
			return fmt.Errorf("%s: set coalescing: %w", netdev, err)
		}
	}
	return nil
}

// netdevName refuses what cannot be the name of a network device: it becomes a path.
func netdevName(s string) error {
	if s == "" || len(s) > 15 || s == "." || s == ".." || strings.ContainsAny(s, "/\x00") || printable.Line(s) != s {
		return fmt.Errorf("%.40q is not the name of a network device", s)
	}
	return nil
}
