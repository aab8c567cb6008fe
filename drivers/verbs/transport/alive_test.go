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

// A filtering provider's queue pairs take every send and do nothing with those that pass
// does not let through, as soft RoCE does when it tries for ever.
type filtering struct{ wrapping }

// Name says that it is a device: see Transport.start.
func (filtering) Name() string { return "filtering" }

func filter(pass func(*verbs.SendWR) bool) verbs.Provider {
	return filtering{wrapping{Provider: soft.Provider{}, wrap: func(q verbs.QP) verbs.QP { return filteringQP{q, pass} }}}
}

type filteringQP struct {
	verbs.QP
	pass func(*verbs.SendWR) bool
}

func (q filteringQP) PostSend(wrs []verbs.SendWR) (int, error) {
	for i := range wrs {
		if !q.pass(&wrs[i]) {
			continue
		}
		if _, err := q.QP.PostSend(wrs[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

// TestDeadPath: a path that is dead ends a connection whose control channel lives, once
// something was sent on it, and no other.
func TestDeadPath(t *testing.T) {
	var dead atomic.Bool
	a := openOn(t, Options{DeadTime: time.Second}, filter(func(*verbs.SendWR) bool { return !dead.Load() }))
	b := openOn(t, Options{}, filter(func(*verbs.SendWR) bool { return true }))
	defer b.Close()
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
	eventually(t, "the idle connection's pause is marked", func() bool {
		idle.mu.Lock()
		defer idle.mu.Unlock()
		l := idle.cur.lanes[0]
		return l.marked == l.sends && l.outstanding() == 0
	})
	dead.Store(true)
	if err := busy.Send(t.Context(), one); err != nil { // its completion is not asked for
		t.Fatal(err)
	}
	_, err := busy.Recv(t.Context(), one)
	var ce *ConnError
	if !errors.Is(err, ErrPeerGone) || !errors.As(err, &ce) || ce.Unknown == 0 || !strings.Contains(err.Error(), "no send has completed for at least 800ms") {
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

// TestLostSegment: a device that loses a segment without a word ends the connection, also
// when nothing follows it, instead of letting both ends wait for ever.
func TestLostSegment(t *testing.T) {
	var lost atomic.Bool
	a := openOn(t, Options{DeadTime: time.Second}, filter(func(w *verbs.SendWR) bool { return w.Signaled || lost.Swap(true) }))
	b := openOn(t, Options{}, filter(func(*verbs.SendWR) bool { return true }))
	defer b.Close()
	from, to := connect(t, a, b)
	if err := from.Send(t.Context(), make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if _, err := to.Recv(t.Context(), make([]byte, 8)); !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), "1 segments are missing") {
		t.Errorf("received after a loss: %v", err)
	}
	if !lost.Load() {
		t.Error("nothing was lost")
	}
	if err := a.Close(); err != nil && !errors.As(err, new(*ConnError)) {
		t.Error(err)
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
