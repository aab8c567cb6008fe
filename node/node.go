// Package node is one machine as rdmatune sees it: the local one, a captured tree
// of /sys and /proc, or a built-in simulated one. Everything above it works the
// same on all three and cannot tell which one it has.
//
// What is written to a captured or simulated node goes to a layer in its state
// directory, and it never sees a file, socket or process of this machine that it
// was not given.
package node

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/rdmatune/rdmatune/internal/procs"
	"github.com/rdmatune/rdmatune/internal/rundir"
	"github.com/rdmatune/rdmatune/internal/sysfs"
)

// A Kind says what stands behind a node.
type Kind uint8

// Kinds.
const (
	Local     Kind = iota // this machine
	Captured              // files taken from a machine
	Simulated             // a built-in machine
)

// String returns the kind in lower case.
func (k Kind) String() string { return [...]string{"local", "captured", "simulated"}[k%3] }

// A Node is one machine. It is safe for use by several goroutines.
type Node struct {
	ref      string
	kind     Kind
	fs       sysfs.FS
	adopted  *sysfs.Mem // processes shown by Adopt; nil on the local node
	stateDir string
	identity string // names a captured or simulated node beyond its base name

	mu     sync.Mutex
	faults *sysfs.Faults // guarded by mu
	pids   []int         // shown by Adopt; guarded by mu
}

// Open opens the node that ref names: "" or "local", "sim:NAME", or the path of a
// captured directory or .tar.gz archive. State is kept below stateDir ("" is
// DefaultStateDir). Opening writes nothing anywhere.
func Open(ref, stateDir string) (*Node, error) {
	if stateDir == "" {
		stateDir = DefaultStateDir()
	}
	switch {
	case ref == "" || ref == "local":
		return &Node{ref: "local", kind: Local, fs: sysfs.Host(), stateDir: stateDir}, nil
	case strings.HasPrefix(ref, "sim:"):
		return openSimulated(ref, stateDir)
	}
	return openCaptured(ref, stateDir)
}

func openSimulated(ref, stateDir string) (*Node, error) {
	tree, err := simulate(strings.TrimPrefix(ref, "sim:"))
	if err != nil {
		return nil, err
	}
	n := atRest(ref, Simulated, ref, stateDir)
	n.fs = tree.Open(n.layerDir(), n.adopted, sysfs.WithEmulator(kernel{}))
	return n, nil
}

func openCaptured(ref, stateDir string) (*Node, error) {
	full, err := filepath.Abs(ref)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", ref, err)
	}
	info, err := os.Stat(full)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w (a node is local, sim:%s, or a captured directory or .tar.gz)",
			ref, err, strings.Join(simulatedNames(), ", sim:"))
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("node %s: neither a directory nor a regular file", ref)
	}
	n := atRest(ref, Captured, full, stateDir)
	open := sysfs.OpenArchive
	if info.IsDir() {
		open = sysfs.OpenDir
	}
	if n.fs, err = open(full, n.layerDir(), n.adopted, sysfs.WithEmulator(kernel{})); err != nil {
		return nil, fmt.Errorf("node %s: %w", ref, err)
	}
	return n, nil
}

// atRest returns a node whose state directory is its own.
func atRest(ref string, kind Kind, identity, stateDir string) *Node {
	sum := sha256.Sum256([]byte(identity))
	short := hex.EncodeToString(sum[:4])
	return &Node{
		ref: ref, kind: kind, adopted: sysfs.NewMem(), identity: short,
		stateDir: filepath.Join(stateDir, "nodes", safeName(ref)+"-"+short),
	}
}

// safeName keeps of a reference what is easy in a path; the hash beside it makes it
// unique.
func safeName(ref string) string {
	base := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(ref), ".gz"), ".tar")
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '-'
	}, base)
	return name[:min(len(name), 64)]
}

// Ref is what the node was opened by; "local" for this machine.
func (n *Node) Ref() string { return n.ref }

// Kind says what stands behind the node.
func (n *Node) Kind() Kind { return n.kind }

// FS is the node's file tree.
func (n *Node) FS() sysfs.FS {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fs.WithFaults(n.faults)
}

// InjectFaults makes writes to the node fail as f says, from now on. A write that
// goes to no file has the name "/affinity/THREAD" or "/ethtool/NETDEV". It is for
// tests.
func (n *Node) InjectFaults(f *sysfs.Faults) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = f
}

// check asks the injected faults about a write that goes to no file.
func (n *Node) check(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.faults.Check(name)
}

// StateDir is where the node's state is kept. It need not exist yet.
func (n *Node) StateDir() string { return n.stateDir }

// RunDir is where the node's lock, sockets and published hints are: the machine's
// own for the local node, a private one for others. It need not exist yet.
func (n *Node) RunDir() string {
	if n.kind == Local {
		return rundir.Default()
	}
	return filepath.Join(n.stateDir, "run")
}

// layerDir is where writes to a node at rest go.
func (n *Node) layerDir() string { return filepath.Join(n.stateDir, "layer") }

// BootID identifies the boot, on which originals depend. A capture without one is a
// single boot for ever.
func (n *Node) BootID() (string, error) {
	id, err := n.FS().ReadString("/proc/sys/kernel/random/boot_id")
	switch {
	case err == nil && id != "":
		return id, nil
	case n.kind == Captured:
		return "captured-" + n.identity, nil
	case err == nil:
		return "", fmt.Errorf("boot id: the kernel gives none")
	}
	return "", fmt.Errorf("boot id: %w", err)
}

// Procs is the node's process table.
func (n *Node) Procs() procs.Table {
	if n.kind == Local {
		return procs.New(n.FS(), lookupUser)
	}
	return procs.New(n.FS(), nil)
}

// lookupUser asks the machine's user database, which may be more than a file.
func lookupUser(name string) (int, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(u.Uid)
}

// Self is the process id under which the node shows rdmatune itself, 0 when it does not.
func (n *Node) Self() int {
	if n.kind == Local {
		return os.Getpid()
	}
	return 0
}

// Close releases what the node holds open.
func (n *Node) Close() error { return n.fs.Close() }
