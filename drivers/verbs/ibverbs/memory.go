package ibverbs

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/internal/ibv"
)

type pd struct {
	dev *device
	p   ibv.PD
}

func (p *pd) Close() error { return p.dev.wrap(p.p.Close()) }

func (p *pd) RegMR(buf []byte, access verbs.Access) (verbs.MR, error) {
	if len(buf) == 0 {
		return nil, fmt.Errorf("%s: register no memory: %w", p.dev.name, syscall.EINVAL)
	}
	m, err := p.p.RegMR(buf, int(access))
	if err != nil {
		return nil, p.dev.wrap(err)
	}
	return &mr{p.dev, m, address(buf), len(buf)}, nil
}

func (p *pd) RegDMABuf(fd int, offset, length uint64, access verbs.Access) (verbs.MR, error) {
	if length == 0 || length > maxMR || offset > maxMR {
		return nil, fmt.Errorf("%s: register %d bytes at %d of a dma-buf: %w", p.dev.name, length, offset, syscall.EINVAL)
	}
	if !p.dev.attr.DMABuf {
		return nil, fmt.Errorf("%s: register dma-buf: %s: %w", p.dev.name, p.dev.attr.DMABufWhy, syscall.EOPNOTSUPP)
	}
	// Peers address the region by the offset: a device needs the two to be alike
	// within a page.
	m, err := p.p.RegDMABuf(fd, offset, length, offset, int(access))
	if err != nil {
		return nil, p.dev.wrap(err)
	}
	return &mr{p.dev, m, offset, int(length)}, nil
}

// maxMR bounds a region: more than any memory, less than what overflows.
const maxMR = 1 << 48

type mr struct {
	dev  *device
	mr   ibv.MR
	addr uint64
	len  int
}

func (m *mr) LKey() uint32 { return m.mr.LKey() }
func (m *mr) RKey() uint32 { return m.mr.RKey() }
func (m *mr) Addr() uint64 { return m.addr }
func (m *mr) Len() int     { return m.len }
func (m *mr) Close() error { return m.dev.wrap(m.mr.Close()) }

// probe finds what the device grants by trying it on objects that are thrown away.
func (d *device) probe() error {
	q, err := d.ctx.NewCQ(1, ibv.Channel{}, 0)
	if err != nil {
		return err
	}
	d.attr.Moderation = q.Moderate(1, 0) == nil // one completion an event: as it is
	if err := q.Close(); err != nil {
		return err
	}
	p, err := d.ctx.AllocPD()
	if err != nil {
		return err
	}
	d.attr.DMABufWhy = whyNoDMABuf(p)
	d.attr.DMABuf = d.attr.DMABufWhy == ""
	return p.Close()
}

// whyNoDMABuf registers a descriptor that is none: only where everything needed is
// there, the answer is that the descriptor is bad.
func whyNoDMABuf(p ibv.PD) string {
	if !ibv.HasDMABuf() {
		return "this libibverbs has no ibv_reg_dmabuf_mr (rdma-core 34 has)"
	}
	m, err := p.RegDMABuf(-1, 0, 4096, 0, int(verbs.AccessLocalWrite))
	switch {
	case err == nil:
		m.Close()
		return "the device registers what is no dma-buf"
	case errors.Is(err, syscall.EBADF):
		return ""
	case errors.Is(err, syscall.EPROTONOSUPPORT):
		return "this kernel's ib_uverbs cannot register dma-bufs (Linux 5.12 can)"
	case errors.Is(err, syscall.EOPNOTSUPP):
		return "the device's driver cannot register dma-bufs"
	}
	return err.Error()
}
