package control

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/rdmatune/rdmatune/internal/printable"
)

func FuzzOrder(f *testing.F) {
	f.Add([]byte(`{"id":"r","generation":3,"workload":"allreduce[\"0\"]","settings":{"size":16384,"lanes":"dual","completion":"busy","ordered":false,"eager_max":1,"override":false,"drain_timeout_ms":2000,"cooldown_ms":0},"open":true}`))
	f.Add([]byte(`{"id":"r","generation":3,"workload":"w","settings":null}`))
	f.Add([]byte(`{"id":"r","generation":3,"workload":"w"} x`))
	f.Add([]byte(`{"id":"r","generation":3,"workload":"w","settings":{"lanes":"triple"}}`))
	f.Add([]byte(`{"generation":-1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := decodeOrder(bytes.NewReader(b))
		if err != nil {
			return
		}
		again, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeOrder(bytes.NewReader(again)); err != nil {
			t.Fatalf("%s was accepted, but not as written again: %v", b, err)
		}
	})
}

func FuzzProcess(f *testing.F) {
	size := int64(16384)
	good, err := json.Marshal(Process{Version: Version, Workload: "w", Device: "soft0", Hint: EffectiveHint{Size: &size},
		Conns: []Conn{{ID: 1, Peer: "127.0.0.1:1", Lanes: []Lane{{Epoch: 1, Profile: "bandwidth"}}, Bands: []Band{{To: 8, Tier: "inline"}}, Degraded: []string{"lane 0: inline"},
			Sent: Traffic{Tiers: []Tier{{Name: "eager", Times: []Bin{{From: 1, Count: 2}}}}, Sizes: []Bin{{Count: 1}}}, Switches: []Switch{{Outcome: Switched}}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"version":1,"workload":"\u001b[2J"}`))
	f.Add([]byte(`{"version":1,"conns":[{"id":1},{"id":1}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Process
		if json.Unmarshal(b, &p) != nil || p.check() != nil {
			return
		}
		s := p.Workload + p.Device + p.Hint.Origin
		for _, c := range p.Conns {
			for _, b := range c.Bands {
				s += b.Tier
			}
			for _, l := range c.Lanes {
				s += l.Profile + l.Completion
			}
			for _, k := range c.Sent.Tiers {
				s += k.Name
			}
			s += strings.Join(c.Degraded, "")
		}
		if printable.Line(s) != s {
			t.Fatalf("unprintable text accepted: %q", s)
		}
		for _, s := range settings([]Process{p}) {
			if s.Note != printable.Line(s.Note) {
				t.Fatalf("unprintable note %q", s.Note)
			}
		}
	})
}

func FuzzFileName(f *testing.F) {
	for _, s := range []string{"w", `allreduce["0"]`, "../../etc/passwd", ".hidden", "", "a/b", strings.Repeat("é", 100), "a%2Fb"} {
		f.Add(s, s+"x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		na, nb := FileName(a), FileName(b)
		if (a == b) != (na == nb) {
			t.Fatalf("%q and %q are %q and %q", a, b, na, nb)
		}
		if strings.ContainsAny(na, "/\x00") || strings.HasPrefix(na, ".") && na != ".json" || len(na) > 250 {
			t.Fatalf("%q is %q", a, na)
		}
	})
}

func FuzzPublished(f *testing.F) {
	f.Add([]byte(`{"version":1,"workload":"w","settings":{"size":0}}`))
	f.Add([]byte(`{"version":1,"workload":"w","settings":{"size":-1}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parsePublished(b, "w"); err == nil && s.Check() != nil {
			t.Fatalf("%s gives %+v", b, s)
		}
	})
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("1 (a) b) S 1 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 12345 1 1"))
	f.Add([]byte("1 (x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := parseStart("stat", b); err != nil && n != 0 {
			t.Fatalf("%d and %v", n, err)
		}
	})
}
