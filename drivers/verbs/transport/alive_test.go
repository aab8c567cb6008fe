package transport

import (
	"testing"
	"time"
)

func TestDeadTime(t *testing.T) {
	for _, c := range []struct {
		given, want time.Duration
		exp         int
	}{
		{0, 10 * time.Second, 14},
		{time.Millisecond, time.Second, 10},
		{time.Second, time.Second, 10},
		{time.Minute, time.Minute, 16},
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
