package transport

import (
	"slices"
	"testing"
)

func TestProfiles(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	general := profile{profileGeneral, shape{256, 8240, 8256, 64, true}, 64, completionAdaptive}
	bandwidth := profile{profileBandwidth, shape{256, 0, 64, 64, true}, 64, completionEvent}
	low := func(eager, segment, inline int) profile {
		return profile{profileLowLatency, shape{16, eager, segment, inline, false}, 1, completionAdaptive}
	}
	for _, c := range []struct {
		name      string
		follow    follow
		maxInline int
		want      []profile
	}{
		{"no hint", follow{}, 512, []profile{general}},
		{"hint 0 is the same queue", follow{hint: n(0)}, 512, []profile{general}},
		{"hint 0 has no second lane", follow{hint: n(0), dual: true}, 512, []profile{general}},
		{"device without inline", follow{}, 0, []profile{{profileGeneral, shape{256, 8240, 8256, 0, true}, 64, completionAdaptive}}},
		{"8 KiB", follow{hint: n(8192)}, 512, []profile{low(8192, 8192+headerLen, 512)}},
		{"more inline than is good", follow{hint: n(8192)}, 4096, []profile{low(8192, 8192+headerLen, 1024)}},
		{"eager_max below the hint", follow{hint: n(8192), eagerMax: 4096}, 512, []profile{low(4096, 4096+headerLen, 512)}},
		{"tiny", follow{hint: n(1)}, 512, []profile{low(minEager, 512, 512)}},
		{"huge", follow{hint: n(1 << 30)}, 512, []profile{low(maxEager, maxEager+headerLen, 512)}},
		{"dual, no copies on the second lane", follow{hint: n(16384), dual: true}, 512, []profile{low(16384, 16384+headerLen, 512), bandwidth}},
		{"dual, small hint", follow{hint: n(1024), dual: true}, 512, []profile{low(1024, 1024+headerLen, 512),
			{profileBandwidth, shape{256, 8240, 8256, 64, true}, 64, completionEvent}}},
	} {
		c.follow.completion = completionAdaptive
		got := layoutFor(&c.follow, c.maxInline)
		if have := got.profiles[:got.lanes]; !slices.Equal(have, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, have, c.want)
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
