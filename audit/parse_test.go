package audit

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"
)

// TestParsers: each library's own reading of the same texts. "!" stands for rejected,
// a "*" in front for a reading that is not what the text means.
func TestParsers(t *testing.T) {
	columns := []struct {
		name string
		read parser
	}{
		{"nccl", parseC}, {"libfabric", parseSaturating}, {"ucx", parseUCX}, {"ompi", parseMCA},
		{"nvshmem", parseScaled}, {"mooncake", parseAtoi}, {"rdmatune", parseHint},
	}
	for _, tc := range []struct{ text, want string }{
		{"16384", "16384 16384 16384 16384 16384 16384 16384"},
		{"16K", "*16 *16 16384 16384 16384 *16 16384"},
		{"16k", "*16 *16 16384 16384 16384 *16 !"},
		{"16KB", "*16 *16 16384 16384 16384 *16 16384"},
		{"16KiB", "*16 *16 ! 16384 16384 *16 16384"},
		{"4M", "*4 *4 4194304 4194304 4194304 *4 4194304"},
		{"inf", "*0 *0 inf *0 ! *0 !"},
		{"auto", "*0 *0 auto *0 ! *0 !"},
		{"-1", "*-1 *-1 *inf *18446744073709551615 ! *-1 !"},
		{"0x4000", "16384 16384 ! 16384 ! *0 !"},
		{"010", "*8 *8 10 *8 10 10 10"},
		{"16KBxyz", "*16 *16 *16384 *16384 *16384 *16 !"},
		{"16 K", "*16 *16 ! *16 ! *16 16384"},
		{" 16384", "16384 16384 16384 16384 16384 16384 !"},
		{"1.5K", "*1 *1 ! *1 1536 *1 !"},
		{"", "! 0 ! 0 ! 0 !"},
		{"99999999999999999999", "! *9223372036854775807 *9223372036854775807 *18446744073709551615 ! ! !"},
		{"1T", "*1 *1 1099511627776 *1 1099511627776 *1 !"},
		{"'16K'", "*0 *0 ! *0 ! *0 !"},
	} {
		want := strings.Fields(tc.want)
		if len(want) != len(columns) {
			t.Fatalf("%q: %d columns", tc.text, len(want))
		}
		for i, c := range columns {
			p := c.read(tc.text, true)
			got := p.String()
			if p.Rejected != "" {
				got = "!"
			} else if p.Trap != "" {
				got = "*" + got
			}
			if got != want[i] {
				t.Errorf("%s reads %q as %s (%s%s), want %s", c.name, tc.text, got, p.Trap, p.Rejected, want[i])
			}
		}
	}
}

func TestRndvThresh(t *testing.T) {
	for text, want := range map[string]string{
		"intra:16k,inter:32k": "32768", "inter:auto": "auto", "8k": "8192", "intra:16k": "!", "outer:1": "!", "inter:1x,intra:2": "!", "4k,intra:8k": "4096",
	} {
		p := parseRndv(text, true)
		got := p.String()
		if p.Rejected != "" {
			got = "!"
		}
		if got != want {
			t.Errorf("%q: %s (%s), want %s", text, got, p.Rejected, want)
		}
	}
}

func TestWithinAndFlags(t *testing.T) {
	mtu := within(parseAtoi, 1, 65535)
	for text, want := range map[string]string{"4096": "4096", "0": "", "70000": "", "64K": "64"} {
		p := mtu(text, true)
		if want == "" {
			if p.Rejected == "" {
				t.Errorf("%q is taken as %s", text, p)
			}
			continue
		}
		if p.String() != want {
			t.Errorf("%q: %s, want %s", text, p, want)
		}
	}
	for text, want := range map[string]string{"0": "0", "no": "0", "off": "1*", "1": "1", "": "1*", "yes": "1"} {
		p := parseFlag(text, false)
		got := p.String()
		if p.Trap != "" {
			got += "*"
		}
		if got != want {
			t.Errorf("switch %q: %s, want %s", text, got, want)
		}
	}
}

func TestParsedJSON(t *testing.T) {
	for _, p := range []Parsed{{Number: new(big.Int).SetUint64(1<<64 - 1)}, {Word: "inf"}, {}} {
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var back Parsed
		if err := json.Unmarshal(b, &back); err != nil || !back.equal(p) {
			t.Errorf("%s comes back as %s: %v", b, back, err)
		}
	}
	var p Parsed
	for _, bad := range []string{"1.5", "1e400", "true", "[]", strings.Repeat("9", 100)} {
		if err := json.Unmarshal([]byte(bad), &p); err == nil {
			t.Errorf("%s is taken as %s", bad, p)
		}
	}
}

func FuzzParsers(f *testing.F) {
	for _, s := range []string{"16K", "0x", "0x1", "-", "+5kB", "1e9k", ".", "intra:1,inter:2", "inf", "\x00", "9223372036854775808"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, read := range []parser{parseC, parseSaturating, parseUCX, parseRndv, parseMCA, parseScaled, parseLong, parseAtoi, parseFlag, parseText, parseHint} {
			p := read(s, true)
			if p.Number != nil && p.Rejected != "" {
				t.Errorf("%q is both %s and rejected", s, p)
			}
			if p.Number != nil && p.Number.BitLen() > 64 {
				t.Errorf("%q is read as %s: no library has so many bits", s, p)
			}
		}
	})
}
