package over

import (
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs/transport"
)

func open(t *testing.T) *transport.Transport {
	t.Helper()
	tr, err := transport.Open(t.Context(), transport.Options{Device: "soft0", Mirror: true, Private: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	return tr
}

func TestJobs(t *testing.T) {
	event := "event"
	for _, c := range []struct {
		name     string
		settings *transport.Settings
		job      Job
		want     int // results
	}{
		{"round trips", nil, Job{Size: 8, Count: 100, Warmup: 10, InFlight: 1}, 100},
		{"large ones", nil, Job{Size: 300_000, Count: 10, InFlight: 1}, 10},
		{"stream", nil, Job{Size: 64 << 10, Count: 101, Warmup: 3, Stream: true, InFlight: 8}, 1},
		{"settings of its own", &transport.Settings{Size: new(int64), Completion: &event}, Job{Size: 8, Count: 10, InFlight: 1}, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			served := make(chan error, 1)
			server, client := open(t), open(t)
			l, err := server.Listen(t.Context(), "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() { served <- Serve(t.Context(), server, l) }()
			got, err := Connect(t.Context(), client, l.Addr().String(), c.settings, c.job)
			if err != nil {
				t.Fatal(err)
			}
			if err := <-served; err != nil {
				t.Errorf("server: %v", err)
			}
			if len(got) != c.want {
				t.Errorf("%d results, want %d", len(got), c.want)
			}
		})
	}
}

func TestJobBounds(t *testing.T) {
	for _, j := range []Job{
		{}, {Size: 1 << 40, Count: 1, InFlight: 1}, {Size: 1, Count: -1, InFlight: 1}, {Size: 1, Count: 1},
		{Size: 1, Count: 1, InFlight: 1, Warmup: -1}, {Size: 1, Count: 1, InFlight: 1 << 20},
	} {
		if err := j.check(); err == nil {
			t.Errorf("%+v was taken", j)
		}
	}
}
