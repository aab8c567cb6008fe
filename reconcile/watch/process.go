package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// processRoom holds about ten thousand events: a launcher that starts a job's processes on
// a large node makes thousands within a second.
const processRoom = 8 << 20

// Numbers of the process connector, from the kernel's include/uapi/linux/connector.h and
// cn_proc.h.
const (
	connectorProcess = 1 // CN_IDX_PROC and CN_VAL_PROC; as a group too
	connectorListen  = 1 // PROC_CN_MCAST_LISTEN
	connectorIgnore  = 2 // PROC_CN_MCAST_IGNORE

	processNone = 0          // the answer to a listener
	processExec = 0x00000002 // a process has become another program
	processName = 0x00000200 // a thread has changed its name

	connectorHeader = 20 // struct cn_msg
	eventWhat       = messageHeader + connectorHeader
	eventData       = eventWhat + 16 // after what, the CPU and the time
	eventSize       = eventData + 8  // with the two ids that exec and a name begin with
)

// The namespaces in which the kernel serves the connector, by the fixed numbers of the
// first of each (PROC_PID_INIT_INO and PROC_USER_INIT_INO of the kernel's proc_ns.h).
var initial = map[string]string{
	"/proc/self/ns/pid":  "pid:[4026531836]",
	"/proc/self/ns/user": "user:[4026531837]",
}

// answerTime is how long the kernel has to answer a listener; it does so before the
// request returns.
const answerTime = time.Second

func openProcesses(w *Watcher, _ Config) (_ source, err error) {
	for file, want := range initial {
		if got, err := os.Readlink(file); err != nil || got != want {
			return nil, fmt.Errorf("process connector: works only in the initial pid, user and network namespaces; %s is %q", file, got)
		}
	}
	s, err := w.listen(Processes, unix.NETLINK_CONNECTOR, connectorProcess, processRoom)
	if err != nil {
		if errors.Is(err, unix.EPERM) {
			return nil, fmt.Errorf("process connector: needs CAP_NET_ADMIN: %w", err)
		}
		return nil, fmt.Errorf("process connector: %w", err)
	}
	defer func() {
		if err != nil {
			s.f.Close()
		}
	}()
	// First the answer alone, then events: so it is there before anything else.
	if err := s.filter(answerFilter()); err != nil {
		return nil, fmt.Errorf("process connector: filter: %w", err)
	}
	if err := s.send(connectorRequest(connectorListen)); errors.Is(err, unix.ECONNREFUSED) {
		return nil, fmt.Errorf("process connector: works only in the initial network namespace, in a kernel that has it: %w", err)
	} else if err != nil {
		return nil, fmt.Errorf("process connector: listen: %w", err)
	}
	if err := s.answered(); err != nil {
		return nil, fmt.Errorf("process connector: %w", err)
	}
	if err := s.filter(processFilter()); err != nil {
		return nil, fmt.Errorf("process connector: filter: %w", err)
	}
	s.gather = gatherProcesses
	s.handle = func(b []byte) {
		what, pid, ok := parseProcess(b)
		if !ok {
			return
		}
		k := key{what, "", pid}
		if !w.q.wants(Processes, k) {
			return
		}
		now, name := time.Now(), comm(pid)
		w.q.add(k, Event{Source: Processes, What: what, Subject: name, PID: pid, Comm: name, When: now})
	}
	// Kernels before 6.6 count listeners that never say goodbye, and go on making events
	// for them.
	s.before = func() { _ = s.send(connectorRequest(connectorIgnore)) } // the socket goes anyway
	w.processes = s
	return s, nil
}

// HearProcesses says whether anybody wants to know of new processes; at first somebody
// does. While nobody does they cost next to nothing: the kernel drops what it has to tell
// before it wakes anybody. What was started meanwhile is not told later.
func (w *Watcher) HearProcesses(on bool) error {
	if w.processes == nil {
		return nil // off, and its status says so
	}
	program := processFilter()
	if !on {
		program = deafFilter()
	}
	if err := w.processes.filter(program); err != nil {
		return fmt.Errorf("process connector: filter: %w", err)
	}
	var why error
	if !on {
		why = errors.New("none now, as no workload is about processes")
	}
	w.q.partly(Processes, why)
	return nil
}

// connectorRequest is a message to the process connector.
func connectorRequest(operation uint32) []byte {
	b := native.AppendUint32(nil, messageHeader+connectorHeader+4)
	b = native.AppendUint16(b, unix.NLMSG_DONE)
	b = append(b, make([]byte, messageHeader-6)...)
	b = native.AppendUint32(b, connectorProcess)
	b = native.AppendUint32(b, connectorProcess)
	b = append(b, make([]byte, 8)...) // sequence and acknowledgement
	b = native.AppendUint16(b, 4)
	b = native.AppendUint16(b, 0)
	return native.AppendUint32(b, operation)
}

// answered waits for the kernel's answer to the request to listen. Where somebody else
// listens too, what came before the filter is in front of it.
func (s *socket) answered() error {
	var failed error
	deadline := time.Now().Add(answerTime)
	err := s.conn.Control(func(fd uintptr) {
		for {
			left := time.Until(deadline).Milliseconds()
			if left <= 0 {
				failed = errors.New("the kernel does not answer a listener")
				return
			}
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left))
			n := 0
			if err == nil {
				n, _, err = unix.Recvfrom(int(fd), s.buf, unix.MSG_DONTWAIT)
			}
			switch {
			case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOBUFS):
				continue
			case err != nil:
				failed = err
				return
			}
			if n < eventData+4 || native.Uint32(s.buf[eventWhat:]) != processNone {
				continue
			}
			if errno := unix.Errno(native.Uint32(s.buf[eventData:])); errno != 0 {
				failed = fmt.Errorf("listen: %w", errno)
			}
			return
		}
	})
	return errors.Join(err, failed)
}

// parseProcess reads a datagram of the process connector.
func parseProcess(b []byte) (what string, pid int, ok bool) {
	if len(b) < eventSize || native.Uint32(b[messageHeader:]) != connectorProcess || native.Uint32(b[messageHeader+4:]) != connectorProcess {
		return "", 0, false
	}
	pid = int(int32(native.Uint32(b[eventData+4:]))) // of the whole process
	if pid <= 0 {
		return "", 0, false
	}
	switch native.Uint32(b[eventWhat:]) {
	case processExec:
		return "exec", pid, true
	case processName:
		return "change", pid, true
	}
	return "", 0, false
}

// filter puts a classic BPF program between the kernel and the socket's buffer, so that
// what nobody reads costs no wake.
func (s *socket) filter(program []unix.SockFilter) error {
	var set error
	err := s.conn.Control(func(fd uintptr) {
		set = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(program)), Filter: unsafe.SliceData(program)})
	})
	return errors.Join(err, set)
}

// loaded is how a word of a datagram, which is in the machine's order, looks to BPF, which
// loads it as one of the network's order.
func loaded(word uint32) uint32 { return binary.BigEndian.Uint32(native.AppendUint32(nil, word)) }

// The instructions of classic BPF that the filters need.
func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func jumpIf(word uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: yes, Jf: no, K: loaded(word)}
}

func pass(bytes uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: bytes}
}

// deafFilter lets nothing through.
func deafFilter() []unix.SockFilter { return []unix.SockFilter{pass(0)} }

// answerFilter lets through the answer to a listener.
func answerFilter() []unix.SockFilter {
	return []unix.SockFilter{load(eventWhat), jumpIf(processNone, 0, 1), pass(maxMessage), pass(0)}
}

// processFilter lets through each exec, and each new name of a process that its main
// thread took: programs name their other threads by the dozen.
func processFilter() []unix.SockFilter {
	return []unix.SockFilter{
		load(eventWhat),
		jumpIf(processExec, 5, 0),
		jumpIf(processName, 0, 5),
		load(eventData), // the thread
		{Code: unix.BPF_MISC | unix.BPF_TAX},
		load(eventData + 4), // its process
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_X, Jt: 0, Jf: 1},
		pass(maxMessage),
		pass(0),
	}
}
