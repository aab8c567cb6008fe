package raw

import (
	"net"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
)

func TestJobs(t *testing.T) {
	for _, c := range []struct {
		name string
		job  Job
		want int // results
	}{
		{"round trips", Job{Size: 8, Count: 300, Warmup: 10, Inline: true, Busy: 10, Signal: 16}, 300},
		{"large ones", Job{Size: 100_000, Count: 20, Busy: 10, Signal: 1}, 20},
		{"sends", Job{Size: 64 << 10, Count: 300, Warmup: 20, Stream: true, Busy: 10}, 1},
		{"writes", Job{Size: 1 << 20, Count: 33, Warmup: 1, Stream: true, Write: true, Busy: 10}, 1},
		{"one message", Job{Size: 1, Count: 1, Stream: true, Busy: 1}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			ln, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			served := make(chan error, 1)
			go func() { served <- Serve(soft.Provider{}, "soft0", ln) }()
			got, err := Connect(soft.Provider{}, "soft0", ln.Addr().String(), c.job)
			if err != nil {
				t.Fatal(err)
			}
			if err := <-served; err != nil {
				t.Errorf("server: %v", err)
			}
			if len(got) != c.want {
				t.Errorf("%d results, want %d", len(got), c.want)
			}
			for _, d := range got {
				if d <= 0 || d > time.Minute {
					t.Errorf("took %v", d)
				}
			}
		})
	}
}

func TestJobBounds(t *testing.T) {
	for _, j := range []Job{
		{}, {Size: 1 << 40, Count: 1, Busy: 1}, {Size: 1, Count: -1, Busy: 1}, {Size: 1, Count: 1},
		{Size: 1, Count: 1, Busy: 1, Write: true}, {Size: 1, Count: 1, Busy: 1, Signal: 1, Warmup: -1}, {Size: 1, Count: 1, Busy: 1},
	} {
		if err := j.check(); err == nil {
			t.Errorf("%+v was taken", j)
		}
	}
}

func TestMeasure(t *testing.T) {
	got, err := Measure(soft.Provider{}, "soft0")
	if err != nil || got.Call <= 0 || got.Poll < 0 || got.Call > time.Second {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := Measure(soft.Provider{}, "soft7"); err == nil {
		t.Error("a device that is not there was measured")
	}
}
