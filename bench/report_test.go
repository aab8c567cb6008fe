package bench

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/internal/golden"
	"github.com/rdmatune/rdmatune/measure"
)

func TestReport(t *testing.T) {
	fast, slow := measure.New(), measure.New()
	for i := range 100 {
		fast.Record(time.Duration(2000+i) * time.Nanosecond)
	}
	slow.Record(1500 * time.Microsecond)
	spiky := measure.New()
	var worst measure.Worst
	for i := range int64(100) {
		took := 2 * time.Microsecond
		if i%50 == 49 {
			took = 20 * time.Microsecond
		}
		worst.Record(measure.Sample{Index: i, At: time.Duration(i) * time.Millisecond, Latency: took})
		spiky.Record(took)
	}
	rep := Report{
		Workload: "allreduce", Device: "mlx5_0", PeerDevice: "mlx5_1", Simulated: true, Warmup: 100, Complete: true,
		Sizes: []Size{
			{Size: 8, Sent: 200, Latency: fast},
			{Size: 64, Sent: 200, Latency: spiky, Worst: worst.Samples()[:2]},
			{Size: 65_536, Sent: 101, Counts: Counts{1, 2, 3, 4}, Latency: slow},
			{Size: 1 << 20, Latency: measure.New()},
		},
		Unknown: 1,
		Switches: []control.Switch{{
			Generation: 3, Outcome: control.Switched, Held: 5, Drained: 2, Pause: 1200 * time.Microsecond,
			When: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
		}},
	}
	var text bytes.Buffer
	if err := rep.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "report.txt", text.Bytes())
	js, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "report.json", append(js, '\n'))
	if rep.OK() {
		t.Error("a report with lost messages is OK")
	}
	empty, err := json.Marshal(Report{})
	if err != nil || !bytes.Contains(empty, []byte(`"sizes":[],`)) || !bytes.Contains(empty, []byte(`"switches":[]`)) {
		t.Errorf("an empty report is %s, error %v", empty, err)
	}
}

// TestBurstReport has bursts of two series: the connection of one tells when its queue
// was full, that of the other does not.
func TestBurstReport(t *testing.T) {
	latency := measure.New()
	told, untold := Sends{}, Sends{}
	for i := range 100 {
		latency.Record(time.Duration(90+i) * time.Microsecond)
		one := send{took: 2 * time.Microsecond}
		if i%10 == 9 {
			one = send{took: 80 * time.Microsecond, full: i%20 == 9}
		}
		told.record(one, true)
		one.full = false
		untold.record(one, false)
	}
	rep := Report{
		Workload: "allreduce", Device: "mlx5_0", PeerDevice: "mlx5_1", Mode: Mixed, Burst: 64, Warmup: 100, Complete: true,
		Series: []Series{{Name: "hint 64 KiB"}, {Name: "hint 1 KiB"}},
		Sizes: []Size{
			{Series: "hint 64 KiB", Tier: "eager", Size: 256, Sent: 200, Latency: latency, Sends: told},
			{Series: "hint 1 KiB", Size: 256, Sent: 200, Latency: latency, Sends: untold},
		},
	}
	var text bytes.Buffer
	if err := rep.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "burst.txt", text.Bytes())
	js, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "burst.json", append(js, '\n'))
}
