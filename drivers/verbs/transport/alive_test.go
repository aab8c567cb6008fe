package transport

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
