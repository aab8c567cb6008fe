package control

import (
	"context"
	"errors"

	"github.com/rdmatune/rdmatune/param"
)

// Driver is the driver of param.Hint over the run directory's sockets and files.
type Driver struct{}

// NewDriver returns the driver for runDir.
func NewDriver(runDir string, matches func(pid int, m param.Match) (bool, error)) *Driver {
	return &Driver{}
}

var errNotYet = errors.New("control: not yet")

// List returns the live transport processes of runDir, by ascending pid.
func List(ctx context.Context, runDir string) ([]Process, error) { return nil, errNotYet }

// Kind is param.Hint.
func (d *Driver) Kind() param.Kind { return param.Hint }

// Discover returns the published target of the workload and one per process of it.
func (d *Driver) Discover(ctx context.Context, s param.Scope) ([]param.Target, error) {
	return nil, errNotYet
}

// Read returns the settings in force.
func (d *Driver) Read(ctx context.Context, t param.Target) ([]param.Setting, error) {
	return nil, errNotYet
}

// Prepare tells every process what its side shall have, before any switches.
func (d *Driver) Prepare(ctx context.Context, targets []param.Target, o param.Order) error {
	return errNotYet
}

// Apply publishes, or orders a process and waits for its switches.
func (d *Driver) Apply(ctx context.Context, t param.Target, cs []param.Change, o param.Order) ([]param.Setting, error) {
	return nil, errNotYet
}
