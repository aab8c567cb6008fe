// Package node is one machine as rdmatune sees it: the local one, a captured tree
// of /sys and /proc, or a built-in simulated one. Everything above it works the
// same on all three and cannot tell which one it has.
package node

import (
	"context"
	"errors"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/internal/ethnl"
	"github.com/rdmatune/rdmatune/internal/procs"
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

var errSkeleton = errors.New("not written yet")

type Node struct{}

// A Process is a process that a simulated or captured node shows in its /proc.
type Process struct {
	PID      int
	Start    uint64
	Comm     string
	Cmdline  []string
	Workload string
	UID      int
	Threads  []int
}

func Open(ref, stateDir string) (*Node, error)                    { return nil, errSkeleton }
func (n *Node) Ref() string                                       { return "" }
func (n *Node) Kind() Kind                                        { return Local }
func (n *Node) FS() sysfs.FS                                      { return sysfs.FS{} }
func (n *Node) Facts(ctx context.Context) (*Facts, error)         { return nil, errSkeleton }
func (n *Node) StateDir() string                                  { return "" }
func (n *Node) RunDir() string                                    { return "" }
func (n *Node) BootID() (string, error)                           { return "", errSkeleton }
func (n *Node) Procs() procs.Table                                { return procs.Table{} }
func (n *Node) Adopt(ps ...Process) error                         { return errSkeleton }
func (n *Node) Affinity(tid int) (cpulist.Set, error)             { return cpulist.New(), errSkeleton }
func (n *Node) SetAffinity(tid int, s cpulist.Set) error          { return errSkeleton }
func (n *Node) Coalesce(netdev string) (ethnl.Coalesce, error)    { return ethnl.Coalesce{}, errSkeleton }
func (n *Node) SetCoalesce(netdev string, c ethnl.Coalesce) error { return errSkeleton }
func (n *Node) Close() error                                      { return nil }
func DefaultStateDir() string                                     { return "" }
func DefaultRunDir() string                                       { return "" }
