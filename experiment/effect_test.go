package experiment

import (
	"testing"
	"time"
)

func TestLastEffect(t *testing.T) {
	db := newDB(t)
	at := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	effect := func(firmware string, hint int64, shown bool, text string) []Effect {
		return []Effect{
			{Workload: "w", Step: StepBase, Device: "mlx5_0", Firmware: firmware, Shown: true, Text: "base"},
			{Workload: "w", Step: StepHint, Device: "mlx5_0", Firmware: firmware, Hint: &hint, Shown: shown, Text: text},
		}
	}
	for i, e := range [][]Effect{effect("1", 8192, true, "old"), effect("1", 8192, false, "new"), effect("2", 8192, true, "later firmware"), nil} {
		x := Experiment{ID: NewID(at), Time: at.Add(time.Duration(i) * time.Hour), Kind: Apply, Status: Done, Device: "mlx5_0", Detail: Detail{Effects: e}}
		if err := db.Finish(t.Context(), x); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		device, firmware string
		hint             int64
		lanes, text      string
	}{
		{"mlx5_0", "1", 8192, "", "new"}, {"mlx5_0", "2", 8192, "", "later firmware"},
		{"mlx5_0", "3", 8192, "", ""}, {"mlx5_0", "1", 4096, "", ""}, {"mlx5_1", "1", 8192, "", ""}, {"mlx5_0", "1", 8192, "dual", ""},
	} {
		e, id, err := db.LastEffect(t.Context(), tc.device, tc.firmware, tc.hint, tc.lanes)
		if err != nil || e.Text != tc.text || (id != "") != (tc.text != "") {
			t.Errorf("%+v: %+v of %q, %v", tc, e, id, err)
		}
	}
}
