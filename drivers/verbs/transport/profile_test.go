package transport

import (
	"testing"
)

func TestProfiles(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	for _, c := range []struct {
		name      string
		hint      *int64
		eagerMax  int64
		maxInline int
		want      profile
	}{
		{"no hint", nil, 0, 512, profile{profileGeneral, shape{256, 8256, 64}, 64, completionAdaptive}},
		{"hint 0 is the same queue", n(0), 0, 512, profile{profileGeneral, shape{256, 8256, 64}, 64, completionAdaptive}},
		{"device without inline", nil, 0, 0, profile{profileGeneral, shape{256, 8256, 0}, 64, completionAdaptive}},
		{"8 KiB", n(8192), 0, 512, profile{profileLowLatency, shape{16, 8192 + headerLen, 512}, 1, completionAdaptive}},
		{"more inline than is good", n(8192), 0, 4096, profile{profileLowLatency, shape{16, 8192 + headerLen, 1024}, 1, completionAdaptive}},
		{"eager_max below the hint", n(8192), 4096, 512, profile{profileLowLatency, shape{16, 4096 + headerLen, 512}, 1, completionAdaptive}},
		{"tiny", n(1), 0, 512, profile{profileLowLatency, shape{16, minEager + headerLen, 512}, 1, completionAdaptive}},
		{"huge", n(1 << 30), 0, 512, profile{profileLowLatency, shape{16, maxEager + headerLen, 512}, 1, completionAdaptive}},
	} {
		if got := profileFor(c.hint, c.eagerMax, completionAdaptive, c.maxInline); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestGrantIsBounded(t *testing.T) {
	for _, w := range []want{{1, minSegment}, {maxCredits, maxSegment}, {maxCredits, minSegment}, {16, 8192}} {
		g := grantFor(w)
		if g.Credits < 1 || g.Credits > w.Credits || g.Segment > w.Segment || g.Credits*g.Segment > recvBudget {
			t.Errorf("wanted %+v, granted %+v", w, g)
		}
	}
}
