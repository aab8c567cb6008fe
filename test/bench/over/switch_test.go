package over

import (
	"testing"
	"time"
)

func TestSwitch(t *testing.T) {
	server, client := open(t), open(t)
	l, err := server.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s, err := Switch(t.Context(), client, l, 4)
	if err != nil {
		t.Fatal(err)
	}
	if s.Wrong != 0 || len(s.Pauses) > 4 || len(s.Before) == 0 {
		t.Errorf("%d messages wrong, %d pauses, %d round trips before", s.Wrong, len(s.Pauses), len(s.Before))
	}
}

func TestRecoveries(t *testing.T) {
	var all []arrival
	for i := range 1000 {
		took := time.Millisecond
		if i >= 500 && i < 600 {
			took = 2 * time.Millisecond
		}
		all = append(all, arrival{time.Duration(i) * time.Millisecond, took})
	}
	got := recoveries(all, 400*time.Millisecond, []time.Duration{500 * time.Millisecond, 990 * time.Millisecond})
	if len(got) != 1 || got[0] != 100*time.Millisecond {
		t.Errorf("%v, want one of 100ms", got)
	}
	if got := recoveries(nil, 0, []time.Duration{0}); got != nil {
		t.Errorf("%v of nothing", got)
	}
}
