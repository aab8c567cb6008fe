package transport

import (
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

func TestDeadTime(t *testing.T) {
	for _, c := range []struct {
		given, want time.Duration
		exp         int
	}{
		{0, 10 * time.Second, 16},
		{time.Millisecond, time.Second, 12},
		{time.Second, time.Second, 12},
		{time.Minute, time.Minute, 18},
		{24 * time.Hour, time.Hour, 18},
	} {
		got := deadTime(c.given)
		if exp := timeoutExp(got); got != c.want || exp != c.exp {
			t.Errorf("%v: %v, timeout exponent %d; want %v, %d", c.given, got, exp, c.want, c.exp)
		}
		if tries := (retryCount + 1) * 4096 * time.Nanosecond << timeoutExp(got); 4*tries > got {
			t.Errorf("%v: a queue pair tries for up to %v", got, 4*tries)
		}
	}
}

// TestKeepAlive reads back what finds a dead peer on an idle channel and on a busy one.
func TestKeepAlive(t *testing.T) {
	a := openSoft(t, Options{DeadTime: 4 * time.Second}, soft.Provider{})
	ca, _ := connect(t, a, a)
	raw, err := ca.tcp.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[int]int{unix.TCP_USER_TIMEOUT: 4000, unix.TCP_KEEPIDLE: 2, unix.TCP_KEEPINTVL: 1} {
		got := 0
		var gerr error
		err := raw.Control(func(fd uintptr) { got, gerr = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, name) })
		if err = errors.Join(err, gerr); err != nil || got != want {
			t.Errorf("socket option %d is %d, want %d: %v", name, got, want, err)
		}
	}
}

// A blocked provider's queue pairs take sends and do nothing with them once the path is dead,
// as soft RoCE does that tries for ever.
type blocked struct {
	verbs.Provider
	dead *atomic.Bool
}

func (p blocked) Open(name string) (verbs.Device, error) {
	d, err := p.Provider.Open(name)
	return blockedDevice{d, p.dead}, err
}

type blockedDevice struct {
	verbs.Device
	dead *atomic.Bool
}

func (d blockedDevice) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return blockedPD{pd, d.dead}, err
}

type blockedPD struct {
	verbs.PD
	dead *atomic.Bool
}

func (p blockedPD) CreateQP(a verbs.QPInitAttr) (verbs.QP, error) {
	q, err := p.PD.CreateQP(a)
	return blockedQP{q, p.dead}, err
}

type blockedQP struct {
	verbs.QP
	dead *atomic.Bool
}

func (q blockedQP) PostSend(wrs []verbs.SendWR) (int, error) {
	if q.dead.Load() {
		return len(wrs), nil
	}
	return q.QP.PostSend(wrs)
}

// TestDeadPath: a path that is dead ends a connection whose control channel lives, once
// something was sent on it, and no other.
func TestDeadPath(t *testing.T) {
	var dead atomic.Bool
	a := openOn(t, Options{DeadTime: time.Second}, blocked{soft.Provider{}, &dead})
	b := openSoft(t, Options{}, soft.Provider{})
	busy, busyPeer := connect(t, a, b)
	idle, idlePeer := connect(t, a, b)
	one := make([]byte, 8)
	for from, to := range map[*Conn]*Conn{busy: busyPeer, idle: idlePeer} {
		if err := from.Send(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if _, err := to.Recv(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	dead.Store(true)
	// A message says when it was lost by what waits for it; several, since not each
	// completion is asked for.
	for range 64 {
		if err := busy.Send(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	_, err := busy.Recv(t.Context(), one)
	var ce *ConnError
	if !errors.Is(err, ErrPeerGone) || !errors.As(err, &ce) || ce.Unknown == 0 || !strings.Contains(err.Error(), "no send has completed for 1s") {
		t.Errorf("on a dead path: %v", err)
	}
	idle.mu.Lock()
	if idle.err != nil {
		t.Errorf("the idle connection: %v", idle.err)
	}
	idle.mu.Unlock()
	dead.Store(false) // or the farewell of the idle one is waited for
	if err := a.Close(); !errors.As(err, &ce) {
		t.Errorf("close: %v, want what became of the messages", err)
	}
}

// TestStands: a lane stands when a completion is due and does not come, look after look.
func TestStands(t *testing.T) {
	type look struct {
		posted, completed uint64
		unsignaled        int
		want              bool
	}
	repeat := func(n int, l look) (out []look) {
		for range n {
			out = append(out, l)
		}
		return out
	}
	still := look{posted: 9, completed: 4}
	last := still
	last.want = true
	for name, looks := range map[string][]look{
		"idle":                     repeat(20, look{posted: 4, completed: 4}),
		"none asked for":           repeat(20, look{posted: 9, completed: 4, unsignaled: 5}),
		"stands":                   append(repeat(pathLooks, still), last),
		"gets on at the last look": append(append(repeat(pathLooks, still), look{posted: 9, completed: 5}), repeat(pathLooks-1, look{posted: 9, completed: 5})...),
		"posts, and nothing comes": {{posted: 5, completed: 4}, {posted: 6, completed: 4}, {posted: 7, completed: 4}, {posted: 8, completed: 4}, {posted: 9, completed: 4}, last},
	} {
		l := &lane{}
		for i, k := range looks {
			l.posted, l.completed, l.unsignaled = k.posted, k.completed, k.unsignaled
			if got := l.stands(); got != k.want {
				t.Errorf("%s: look %d: %v", name, i, got)
			}
		}
	}
}
