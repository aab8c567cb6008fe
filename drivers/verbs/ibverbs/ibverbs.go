// Package ibverbs is the verbs provider over libibverbs, opened at run time.
package ibverbs

import (
	"errors"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// Provider serves the devices that libibverbs finds.
type Provider struct{}

// Name is "ibverbs".
func (Provider) Name() string { return "ibverbs" }

// Devices lists the devices.
func (Provider) Devices() ([]string, error) { return nil, errors.ErrUnsupported }

// Open opens a device.
func (Provider) Open(name string) (verbs.Device, error) { return nil, errors.ErrUnsupported }
