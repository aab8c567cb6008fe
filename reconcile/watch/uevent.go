package watch

import (
	"bytes"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/printable"
)

// ueventRoom holds a few thousand uevents: a large node makes as many when a driver with
// hundreds of queues is loaded.
const ueventRoom = 4 << 20

// kernelGroup is the multicast group of the kernel's own uevents; udev repeats them in
// another.
const kernelGroup = 1

// subsystems are those whose devices rdmatune's settings belong to, or take with them when
// they go.
var subsystems = map[string]bool{
	"cpu": true, "net": true, "queues": true, "module": true, "drivers": true,
	"pci": true, "infiniband": true, "msi": true,
}

// actions are the words of the kernel for what happens to a device
// (Documentation/ABI/testing/sysfs-uevent).
var actions = map[string]bool{
	"add": true, "remove": true, "change": true, "move": true,
	"online": true, "offline": true, "bind": true, "unbind": true,
}

func openUevents(w *Watcher, _ Config) (source, error) {
	s, err := w.listen(Kernel, unix.NETLINK_KOBJECT_UEVENT, kernelGroup, ueventRoom)
	if err != nil {
		return nil, err
	}
	if err := s.set(unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		s.f.Close()
		return nil, err
	}
	s.oob = make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	s.handle = func(b []byte) {
		if what, device, ok := parseUevent(b); ok {
			w.q.put(Kernel, what, device)
		}
	}
	return s, nil
}

// maxPath bounds what is kept of a path or an executable's name from elsewhere.
const maxPath = 1024

// parseUevent reads a uevent: ACTION@DEVPATH and then KEY=VALUE texts, each ended by a NUL.
// It returns what happened and the device's path below /sys, and false for what is no
// uevent or of no interest.
func parseUevent(b []byte) (what, device string, ok bool) {
	head, rest, ok := bytes.Cut(b, []byte{0})
	if !ok || len(head) > maxPath {
		return "", "", false
	}
	what, device, ok = strings.Cut(string(head), "@")
	if !ok || !actions[what] || !strings.HasPrefix(device, "/") {
		return "", "", false
	}
	for entry := range bytes.SplitSeq(rest, []byte{0}) {
		if name, ok := bytes.CutPrefix(entry, []byte("SUBSYSTEM=")); ok {
			return what, printable.Line(device), subsystems[string(name)]
		}
	}
	return "", "", false
}
