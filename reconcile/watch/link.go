package watch

import (
	"bytes"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/printable"
)

// linkRoom holds a few hundred messages of 1 to 2 KiB.
const linkRoom = 1 << 20

// linkGroup is the multicast group of link messages, as a bit of the address.
const linkGroup = 1 << (unix.RTNLGRP_LINK - 1)

// maxLinks bounds how many netdevs are remembered; those beyond are only told about as
// changed.
const maxLinks = 1 << 16

// A link is what is remembered of a netdev to tell what has changed.
type link struct {
	name        string
	up          bool // set up, and the lower layers carry
	admin       bool // set up
	operational byte // the state of RFC 2863
}

// links tells what changes from the kernel's messages, each of which has the whole state
// of one netdev.
type links struct {
	known map[int32]link
}

func openLinks(w *Watcher, _ Config) (source, error) {
	s, err := w.listen(Links, unix.NETLINK_ROUTE, linkGroup, linkRoom)
	if err != nil {
		return nil, err
	}
	l := links{known: map[int32]link{}}
	s.handle = func(b []byte) {
		for h, payload := range messages(b) {
			if what, name := l.message(h, payload); what != "" {
				w.q.put(Links, what, name)
			}
		}
	}
	// What is there already comes as the answer to this, through the same socket, so that
	// no change falls between the two.
	list := func() error {
		if err := s.send(listLinks()); err != nil {
			return fmt.Errorf("list links: %w", err)
		}
		return nil
	}
	s.overrun = func() {
		clear(l.known)
		_ = list() // a link that is not known is told about as added, which is reason enough to look
	}
	if err := list(); err != nil {
		s.f.Close()
		return nil, err
	}
	return s, nil
}

// listLinks is a request for all links.
func listLinks() []byte {
	b := native.AppendUint32(nil, messageHeader+unix.SizeofIfInfomsg)
	b = native.AppendUint16(b, unix.RTM_GETLINK)
	b = native.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	return append(b, make([]byte, messageHeader-8+unix.SizeofIfInfomsg)...)
}

// message returns what a message says has happened to which netdev, nothing for none.
func (l *links) message(h header, b []byte) (what, name string) {
	if h.typ != unix.RTM_NEWLINK && h.typ != unix.RTM_DELLINK || len(b) < unix.SizeofIfInfomsg || b[0] != unix.AF_UNSPEC {
		return "", "" // another family's is about a bridge's port, not about the netdev
	}
	index, flags, attrs := int32(native.Uint32(b[4:])), native.Uint32(b[8:]), b[unix.SizeofIfInfomsg:]
	now := link{
		up:    flags&unix.IFF_UP != 0 && flags&unix.IFF_RUNNING != 0,
		admin: flags&unix.IFF_UP != 0,
	}
	text, _, _ := bytes.Cut(attribute(attrs, unix.IFLA_IFNAME), []byte{0})
	if len(text) == 0 || len(text) >= unix.IFNAMSIZ {
		return "", ""
	}
	now.name = printable.Line(string(text))
	if state := attribute(attrs, unix.IFLA_OPERSTATE); len(state) == 1 {
		now.operational = state[0]
	}
	if h.typ == unix.RTM_DELLINK {
		delete(l.known, index)
		return "remove", now.name
	}
	before, known := l.known[index]
	if known || len(l.known) < maxLinks {
		l.known[index] = now
	}
	switch {
	case h.flags&unix.NLM_F_MULTI != 0: // of the list
		return "", ""
	case !known:
		return "add", now.name
	case now.up && !before.up:
		return "up", now.name
	case before.up && !now.up:
		return "down", now.name
	case now != before:
		return "change", now.name
	}
	return "", ""
}
