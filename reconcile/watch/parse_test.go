package watch

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// uevent makes one as the kernel does.
func uevent(head string, entries ...string) []byte {
	return []byte(head + "\x00" + strings.Join(append(entries, ""), "\x00"))
}

func TestParseUevent(t *testing.T) {
	const cpu = "/devices/system/cpu/cpu3"
	for _, c := range []struct {
		b    []byte
		want string
	}{
		{uevent("offline@"+cpu, "ACTION=offline", "DEVPATH="+cpu, "SUBSYSTEM=cpu", "SEQNUM=812"), "offline " + cpu},
		{uevent("add@/module/e1000e", "SUBSYSTEM=module"), "add /module/e1000e"},
		{uevent("bind@/devices/pci0000:00/0000:00:03.0", "SUBSYSTEM=pci"), "bind /devices/pci0000:00/0000:00:03.0"},
		{uevent("move@/devices/virtual/net/b", "DEVPATH_OLD=/devices/virtual/net/a", "SUBSYSTEM=net"), "move /devices/virtual/net/b"},
		{uevent("add@/devices/a/net/eth0/queues/rx-0", "SUBSYSTEM=queues"), "add /devices/a/net/eth0/queues/rx-0"},
		{uevent("add@/a\x1b[2J", "SUBSYSTEM=net"), "add /a?[2J"},
		{uevent("add@/a@b", "SUBSYSTEM=net"), "add /a@b"},
		{uevent("add@/a", "SUBSYSTEM=block"), ""},
		{uevent("add@/a", "XSUBSYSTEM=net"), ""},
		{uevent("add@/a"), ""},
		{uevent("explode@/a", "SUBSYSTEM=net"), ""},
		{uevent("add@a", "SUBSYSTEM=net"), ""},
		{uevent("add/a", "SUBSYSTEM=net"), ""},
		{uevent("add@/"+strings.Repeat("a", maxPath), "SUBSYSTEM=net"), ""},
		{[]byte("libudev\x00\xfe\xed\xca\xfe"), ""},
		{[]byte("add@/a"), ""},
		{nil, ""},
	} {
		what, device, ok := parseUevent(c.b)
		got := what + " " + device
		if !ok {
			got = ""
		}
		if got != c.want {
			t.Errorf("%q: %q, want %q", c.b, got, c.want)
		}
	}
}

func FuzzParseUevent(f *testing.F) {
	f.Add(uevent("add@/module/e1000e", "SUBSYSTEM=module"))
	f.Add(uevent("add@/a", "SUBSYSTEM"))
	f.Add([]byte("@\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		what, device, ok := parseUevent(b)
		if ok && (!actions[what] || device == "" || device[0] != '/' || len(device) > 3*maxPath || strings.ContainsAny(device, "\x00\n\x1b")) {
			t.Fatalf("%q: %q %q", b, what, device)
		}
	})
}

// datagram makes a netlink message.
func datagram(typ, flags uint16, payload []byte) []byte {
	b := native.AppendUint32(nil, uint32(messageHeader+len(payload)))
	b = native.AppendUint16(b, typ)
	b = native.AppendUint16(b, flags)
	b = append(b, make([]byte, 8)...)
	b = append(b, payload...)
	return append(b, make([]byte, (4-len(payload)%4)%4)...)
}

// attr makes an attribute.
func attr(typ uint16, value []byte) []byte {
	b := native.AppendUint16(nil, uint16(attributeHeader+len(value)))
	b = native.AppendUint16(b, typ)
	b = append(b, value...)
	return append(b, make([]byte, (4-len(value)%4)%4)...)
}

// linkMessage makes the payload of a link message.
func linkMessage(index, flags uint32, name string, operational byte) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	native.PutUint32(b[4:], index)
	native.PutUint32(b[8:], flags)
	b = append(b, attr(unix.IFLA_IFNAME, []byte(name+"\x00"))...)
	return append(b, attr(unix.IFLA_OPERSTATE, []byte{operational})...)
}

func TestLinks(t *testing.T) {
	const (
		set     = unix.IFF_UP
		running = unix.IFF_UP | unix.IFF_RUNNING
		down    = 2 // IF_OPER_DOWN
		dormant = 5
		up      = 6
	)
	l := links{known: map[int32]link{}}
	for i, c := range []struct {
		typ, flags uint16
		payload    []byte
		want       string
	}{
		{unix.RTM_NEWLINK, unix.NLM_F_MULTI, linkMessage(1, running, "lo", 0), ""}, // the list
		{unix.RTM_NEWLINK, unix.NLM_F_MULTI, linkMessage(2, set, "eth0", down), ""},
		{unix.NLMSG_DONE, unix.NLM_F_MULTI, make([]byte, 4), ""},
		{unix.RTM_NEWLINK, 0, linkMessage(1, running, "lo", 0), ""}, // nothing new
		{unix.RTM_NEWLINK, 0, linkMessage(2, set, "eth0", dormant), "change eth0"},
		{unix.RTM_NEWLINK, 0, linkMessage(2, running, "eth0", up), "up eth0"},
		{unix.RTM_NEWLINK, 0, linkMessage(2, running, "eth0", up), ""},
		{unix.RTM_NEWLINK, 0, linkMessage(2, set, "eth0", down), "down eth0"},
		{unix.RTM_NEWLINK, 0, linkMessage(2, 0, "eth0", down), "change eth0"},
		{unix.RTM_NEWLINK, 0, linkMessage(2, 0, "ib0", down), "change ib0"},
		{unix.RTM_NEWLINK, 0, linkMessage(3, 0, "veth\x1b", down), "add veth?"},
		{unix.RTM_DELLINK, 0, linkMessage(3, 0, "veth", down), "remove veth"},
		{unix.RTM_NEWLINK, 0, linkMessage(3, running, "veth", up), "add veth"},
		{unix.RTM_NEWLINK, 0, append([]byte{unix.AF_BRIDGE}, linkMessage(2, running, "ib0", up)[1:]...), ""},
		{unix.RTM_NEWLINK, 0, linkMessage(4, 0, "", 0), ""},
		{unix.RTM_NEWLINK, 0, linkMessage(4, 0, "sixteen-letters-", 0), ""},
		{unix.RTM_NEWLINK, 0, make([]byte, unix.SizeofIfInfomsg), ""},
		{unix.RTM_NEWLINK, 0, make([]byte, unix.SizeofIfInfomsg-1), ""},
		{unix.RTM_NEWADDR, 0, linkMessage(2, running, "ib0", up), ""},
	} {
		what, name := l.message(header{c.typ, c.flags}, c.payload)
		if got := strings.TrimSpace(what + " " + name); got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
}

func TestMessages(t *testing.T) {
	two := slices.Concat(datagram(16, 1, []byte("abc")), datagram(17, 2, nil))
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"two", two, `16 1 "abc", 17 2 "", `},
		{"cut", two[:len(two)-1], `16 1 "abc", `},
		{"length 0", make([]byte, 32), ""},
		{"length 15", append([]byte{15, 0, 0, 0}, make([]byte, 12)...), ""},
		{"too long", append([]byte{0xff, 0xff, 0xff, 0xff}, make([]byte, 12)...), ""},
		{"nothing", nil, ""},
	} {
		got := ""
		for h, payload := range messages(c.b) {
			got += fmt.Sprintf("%d %d %q, ", h.typ, h.flags, payload)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	for range messages(two) {
		break // the walk may be left
	}
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"second", slices.Concat(attr(1, []byte("x")), attr(2, []byte("yz"))), "yz"},
		{"nested", attr(2|unix.NLA_F_NESTED, []byte("n")), "n"},
		{"none", attr(1, []byte("x")), ""},
		{"length 3", []byte{3, 0, 2, 0}, ""},
		{"too long", []byte{200, 0, 2, 0, 1}, ""},
		{"half", []byte{4}, ""},
	} {
		if got := string(attribute(c.b, 2)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func FuzzLinks(f *testing.F) {
	f.Add(datagram(unix.RTM_NEWLINK, 0, linkMessage(2, unix.IFF_UP, "eth0", 6)))
	f.Add(datagram(unix.RTM_DELLINK, 0, linkMessage(2, 0, "eth0", 2)))
	f.Add([]byte{3, 0, 2, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		l := links{known: map[int32]link{}}
		for h, payload := range messages(b) {
			if what, name := l.message(h, payload); (what == "") != (name == "") {
				t.Fatalf("%q of %q", what, name)
			}
		}
	})
}

func TestSenders(t *testing.T) {
	if !kernelSent(&unix.SockaddrNetlink{}) || kernelSent(&unix.SockaddrNetlink{Pid: 1}) || kernelSent(nil) || kernelSent(&unix.SockaddrUnix{}) {
		t.Error("the sender's port")
	}
	for _, c := range []struct {
		cred *unix.Ucred
		want bool
	}{
		{&unix.Ucred{}, true}, {&unix.Ucred{Pid: 1}, false}, {&unix.Ucred{Uid: 1000}, false},
	} {
		if got := rootSent(unix.UnixCredentials(c.cred)); got != c.want {
			t.Errorf("%+v: %v", c.cred, got)
		}
	}
	if rootSent(nil) || rootSent([]byte{1, 2, 3}) || rootSent(unix.UnixRights(0)) {
		t.Error("no credentials are taken for the kernel's")
	}
}

// processEvent makes a datagram of the process connector.
func processEvent(what, thread, process uint32) []byte {
	b := native.AppendUint32(nil, connectorProcess)
	b = native.AppendUint32(b, connectorProcess)
	b = append(b, make([]byte, 12)...)
	b = native.AppendUint32(b, what)
	b = append(b, make([]byte, 12)...)
	b = native.AppendUint32(b, thread)
	b = native.AppendUint32(b, process)
	return datagram(unix.NLMSG_DONE, 0, append(b, make([]byte, 16)...))
}

func TestParseProcess(t *testing.T) {
	other := processEvent(processExec, 7, 7)
	other[messageHeader] = 2
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"exec", processEvent(processExec, 7, 7), "exec 7"},
		{"name", processEvent(processName, 7, 7), "change 7"},
		{"fork", processEvent(1, 7, 7), ""},
		{"process 0", processEvent(processExec, 0, 0), ""},
		{"process -1", processEvent(processExec, 7, 1<<32-1), ""},
		{"another connector", other, ""},
		{"cut", processEvent(processExec, 7, 7)[:eventSize-1], ""},
		{"nothing", nil, ""},
	} {
		what, pid, ok := parseProcess(c.b)
		got := fmt.Sprint(what, " ", pid)
		if !ok {
			got = ""
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestAnswered: what the kernel told another listener before the filter is not its answer.
func TestAnswered(t *testing.T) {
	event := processEvent(processExec, 390, 390)
	for _, c := range []struct {
		name     string
		messages [][]byte
		want     error
	}{
		{"at once", [][]byte{processEvent(processNone, 0, 0)}, nil},
		{"after events", [][]byte{event, event[:eventSize-8], event, processEvent(processNone, 0, 0), event}, nil},
		{"refused", [][]byte{event, processEvent(processNone, uint32(unix.EPERM), 0)}, unix.EPERM},
	} {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		must(t, err)
		f := os.NewFile(uintptr(fds[0]), "test")
		for _, m := range c.messages {
			must(t, unix.Sendto(fds[1], m, 0, nil))
		}
		conn, err := f.SyscallConn()
		must(t, err)
		s := socket{f: f, conn: conn, buf: make([]byte, maxMessage)}
		if err := s.answered(); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		must(t, errors.Join(f.Close(), unix.Close(fds[1])))
	}
}

// TestFilters runs the BPF programs in the kernel, on sockets that take made-up datagrams.
func TestFilters(t *testing.T) {
	for _, c := range []struct {
		name    string
		program []unix.SockFilter
		want    string
	}{
		{"answer", answerFilter(), "none "},
		{"process", processFilter(), "exec name "},
		{"nobody", deafFilter(), ""},
	} {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		must(t, err)
		f, peer := os.NewFile(uintptr(fds[0]), "filtered"), os.NewFile(uintptr(fds[1]), "peer")
		defer f.Close()
		defer peer.Close()
		conn, err := f.SyscallConn()
		must(t, err)
		s := &socket{f: f, conn: conn}
		must(t, s.filter(c.program))
		got := ""
		for _, m := range []struct {
			name string
			b    []byte
		}{
			{"none", processEvent(processNone, 0, 0)},
			{"exec", processEvent(processExec, 9, 9)},
			{"fork", processEvent(1, 9, 9)},
			{"name", processEvent(processName, 9, 9)},
			{"thread's name", processEvent(processName, 10, 9)},
			{"exit", processEvent(0x80000000, 9, 9)},
			{"short", make([]byte, 8)},
		} {
			_, _ = peer.Write(m.b) // what the filter drops is an error here
			buf := make([]byte, 256)
			n, err := unix.Read(fds[0], buf)
			if err == nil && n == len(m.b) {
				got += m.name + " "
			}
		}
		if got != c.want {
			t.Errorf("%s lets through: %q, want %q", c.name, got, c.want)
		}
	}
}

func FuzzParseProcess(f *testing.F) {
	f.Add(processEvent(processExec, 7, 7))
	f.Add(processEvent(processName, 7, 7)[:40])
	f.Fuzz(func(t *testing.T, b []byte) {
		if what, pid, ok := parseProcess(b); ok != (pid > 0) || ok != (what != "") {
			t.Fatalf("%q: %q %d %v", b, what, pid, ok)
		}
	})
}

// fanotifyEvent makes an event as the kernel does.
func fanotifyEvent(size uint32, version byte, mask uint64, fd, pid int32) []byte {
	b := native.AppendUint32(nil, size)
	b = append(b, version, 0)
	b = native.AppendUint16(b, unix.FAN_EVENT_METADATA_LEN)
	b = native.AppendUint64(b, mask)
	b = native.AppendUint32(b, uint32(fd))
	b = native.AppendUint32(b, uint32(pid))
	return append(b, make([]byte, max(int(size), len(b))-len(b))...)
}

func TestParseWrite(t *testing.T) {
	const size, version = unix.FAN_EVENT_METADATA_LEN, unix.FANOTIFY_METADATA_VERSION
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"write", fanotifyEvent(size, version, unix.FAN_MODIFY, 9, 812), "{false 9 812} 24"},
		{"longer", fanotifyEvent(size+8, version, unix.FAN_MODIFY, 9, 812), "{false 9 812} 32"},
		{"overflow", fanotifyEvent(size, version, unix.FAN_Q_OVERFLOW, -1, 0), "{true -1 0} 24"},
		{"another version", fanotifyEvent(size, version+1, unix.FAN_MODIFY, 9, 812), ""},
		{"cut", fanotifyEvent(size, version, unix.FAN_MODIFY, 9, 812)[:size-1], ""},
		{"beyond the end", fanotifyEvent(size+8, version, 0, 9, 812)[:size], ""},
		{"length 0", append(make([]byte, 4), fanotifyEvent(size, version, 0, 9, 812)[4:]...), ""},
	} {
		m, n, ok := parseWrite(c.b)
		got := fmt.Sprint(m, " ", n)
		if !ok {
			got = ""
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func FuzzParseWrite(f *testing.F) {
	f.Add(fanotifyEvent(24, 3, unix.FAN_MODIFY, 9, 812))
	f.Add(fanotifyEvent(24, 3, unix.FAN_Q_OVERFLOW, -1, 0)[:20])
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, n, ok := parseWrite(b); ok && (n < 24 || n > len(b)) {
			t.Fatalf("%d of %d bytes", n, len(b))
		}
	})
}

// inotifyEvent makes an event as the kernel does, its name padded to size.
func inotifyEvent(wd int32, mask uint32, name string, size uint32) []byte {
	b := native.AppendUint32(nil, uint32(wd))
	b = native.AppendUint32(b, mask)
	b = native.AppendUint32(b, 0)
	b = native.AppendUint32(b, size)
	return append(b, (name + strings.Repeat("\x00", 256))[:min(size, 256)]...)
}

func TestParseInotify(t *testing.T) {
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"named", inotifyEvent(3, unix.IN_CREATE, "node.hcl", 16), "{3 256 node.hcl} 32"},
		{"of the directory", inotifyEvent(3, unix.IN_DELETE_SELF, "", 0), "{3 1024 } 16"},
		{"overflow", inotifyEvent(-1, unix.IN_Q_OVERFLOW, "", 0), "{-1 16384 } 16"},
		{"beyond the end", inotifyEvent(3, unix.IN_CREATE, "node.hcl", 16)[:31], ""},
		{"far beyond", inotifyEvent(3, unix.IN_CREATE, "", 1<<32-1), ""},
		{"cut", inotifyEvent(3, unix.IN_CREATE, "", 0)[:15], ""},
	} {
		e, n, ok := parseInotify(c.b)
		got := fmt.Sprint(e, " ", n)
		if !ok {
			got = ""
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func FuzzParseInotify(f *testing.F) {
	f.Add(inotifyEvent(3, unix.IN_CREATE, "node.hcl", 16))
	f.Add(inotifyEvent(3, unix.IN_CREATE, "", 1<<31))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, n, ok := parseInotify(b)
		if ok && (n < 16 || n > len(b) || strings.Contains(e.name, "\x00")) {
			t.Fatalf("%q: %d of %d bytes", e.name, n, len(b))
		}
	})
}
