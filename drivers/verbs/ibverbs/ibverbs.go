// Package ibverbs is the verbs provider over libibverbs, which is opened at run
// time: a program that contains it starts without the library and says so when it
// is needed.
package ibverbs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/internal/ibv"
)

// Built says whether this program is built with verbs; without cgo it is not, and no
// device is found.
const Built = ibv.Built

// Provider serves the devices that libibverbs finds.
type Provider struct{}

// Name is "ibverbs".
func (Provider) Name() string { return "ibverbs" }

// Devices lists the devices.
func (Provider) Devices() ([]string, error) {
	names, err := ibv.Devices()
	slices.Sort(names)
	return names, err
}

// Open opens a device.
func (p Provider) Open(name string) (verbs.Device, error) {
	ctx, err := ibv.Open(name)
	if err != nil {
		if names, lerr := ibv.Devices(); lerr == nil {
			return nil, fmt.Errorf("%w (devices: %s)", err, strings.Join(names, ", "))
		}
		return nil, err
	}
	a, err := ctx.Query()
	if err != nil {
		ctx.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	d := &device{name: name, ctx: ctx, attr: verbs.DeviceAttr{
		Firmware: a.Firmware, NodeGUID: a.NodeGUID, VendorID: a.VendorID, VendorPartID: a.VendorPartID,
		MaxQPWR: a.MaxQPWR, MaxSGE: a.MaxSGE, MaxCQE: a.MaxCQE, CompVectors: a.CompVectors,
	}}
	if err := d.probe(); err != nil {
		ctx.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if d.events, err = newEvents(ctx); err != nil {
		ctx.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

type device struct {
	name   string
	ctx    ibv.Context
	attr   verbs.DeviceAttr
	events *events
}

func (d *device) Name() string           { return d.name }
func (d *device) Attr() verbs.DeviceAttr { return d.attr }
func (d *device) Close() error           { return d.wrap(errors.Join(d.events.close(), d.ctx.Close())) }

func (d *device) Events() <-chan verbs.Event { return d.events.out }

func (d *device) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", d.name, err)
}

func (d *device) Port(port uint8) (verbs.PortAttr, error) {
	a, err := d.ctx.QueryPort(port)
	if err != nil {
		return verbs.PortAttr{}, d.wrap(err)
	}
	if a.ActiveMTU < 1 || a.ActiveMTU > 5 {
		return verbs.PortAttr{}, fmt.Errorf("%s: port %d: unknown MTU %d", d.name, port, a.ActiveMTU)
	}
	return verbs.PortAttr{Active: a.Active, LID: a.LID, ActiveMTU: 128 << a.ActiveMTU, Ethernet: a.Ethernet}, nil
}

// maxGIDs bounds how much of a GID table is read.
const maxGIDs = 1024

func (d *device) GIDs(port uint8) ([]verbs.GIDEntry, error) {
	a, err := d.ctx.QueryPort(port)
	if err != nil {
		return nil, d.wrap(err)
	}
	var out []verbs.GIDEntry
	for i := range min(a.GIDs, maxGIDs) {
		g, err := d.ctx.QueryGID(port, i)
		if err != nil || g == [16]byte{} {
			continue // an unused entry
		}
		out = append(out, verbs.GIDEntry{Index: i, GID: g, RoCEv2: d.isRoCEv2(port, i)})
	}
	return out, nil
}

// isRoCEv2 reads the entry's type, which only sysfs tells in every version of the
// library: /sys/class/infiniband/DEV/ports/P/gid_attrs/types/I.
func (d *device) isRoCEv2(port uint8, index int) bool {
	b, err := os.ReadFile(filepath.Join("/sys/class/infiniband", d.name, "ports", strconv.Itoa(int(port)),
		"gid_attrs/types", strconv.Itoa(index)))
	return err == nil && strings.TrimSpace(string(b)) == "RoCE v2"
}

func (d *device) AllocPD() (verbs.PD, error) {
	p, err := d.ctx.AllocPD()
	if err != nil {
		return nil, d.wrap(err)
	}
	return &pd{d, p}, nil
}

func (d *device) NewCQ(cqe int, ch verbs.CompChannel, vector int) (verbs.CQ, error) {
	var c ibv.Channel
	if ch != nil {
		own, ok := ch.(*channel)
		if !ok {
			return nil, fmt.Errorf("%s: create cq: channel of another provider: %w", d.name, syscall.EINVAL)
		}
		c = own.ch
	}
	q, err := d.ctx.NewCQ(cqe, c, vector)
	if err != nil {
		return nil, d.wrap(err)
	}
	return &cq{q}, nil
}

func (d *device) NewCompChannel() (verbs.CompChannel, error) {
	ch, err := d.ctx.NewChannel()
	if err != nil {
		return nil, d.wrap(err)
	}
	c, err := newChannel(ch)
	if err != nil {
		ch.Close()
		return nil, d.wrap(err)
	}
	return c, nil
}
