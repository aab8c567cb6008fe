package param

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestParseBytes(t *testing.T) {
	tests := []struct {
		in     string
		want   int64
		notice bool
		err    string // part of the error; "" = none
	}{
		{"0", 0, false, ""},
		{"16384", 16384, false, ""},
		{"8B", 8, false, ""},
		{"16KiB", 16384, false, ""},
		{"16 KiB", 16384, false, ""},
		{"1GiB", 1 << 30, false, ""},
		{"16K", 16384, true, ""},
		{"16KB", 16384, true, ""},
		{"2MB", 2 << 20, true, ""},
		{"", 0, false, "is empty"},
		{"-1", 0, false, "negative"},
		{"inf", 0, false, "does not start with a number"},
		{"1.5KiB", 0, false, "fraction"},
		{"16KiBx", 0, false, `unknown unit "KiBx"`},
		{"16  KiB", 0, false, "unknown unit"},
		{"16 ", 0, false, "ends in a space"},
		{"16kib", 0, false, "unknown unit"},
		{"9223372036854775808", 0, false, "too large"},
		{"9223372036854775807GiB", 0, false, "too large"},
		{"0x10", 0, false, "unknown unit"},
		{"１６", 0, false, "does not start with a number"},
	}
	for _, tt := range tests {
		got, notice, err := ParseBytes(tt.in)
		checkParse(t, "ParseBytes", tt.in, got, tt.want, err, tt.err)
		if (notice != "") != tt.notice {
			t.Errorf("ParseBytes(%q) notice = %q, want one: %v", tt.in, notice, tt.notice)
		}
	}
}

func TestParseFrequency(t *testing.T) {
	tests := []struct {
		in   string
		want int64
		err  string
	}{
		{"2600MHz", 2_600_000, ""},
		{"2.6GHz", 2_600_000, ""},
		{"2.701GHz", 2_701_000, ""},
		{"2600.5MHz", 2_600_500, ""},
		{"1200000kHz", 1_200_000, ""},
		{"2600", 0, "has no unit"},
		{"2.6", 0, "has no unit"},
		{"0MHz", 0, "zero"},
		{"2600mhz", 0, "unknown unit"},
		{".5GHz", 0, "is not a number"},
		{"2.GHz", 0, "is not a number"},
		{"2.6.1GHz", 0, "is not a number"},
		{"1.0000001GHz", 0, "finer than 1 kHz"},
		{"-2GHz", 0, "negative"},
		{"99999GHz", 0, "too large"},
		{"", 0, "is empty"},
	}
	for _, tt := range tests {
		got, err := ParseFrequency(tt.in)
		checkParse(t, "ParseFrequency", tt.in, got, tt.want, err, tt.err)
	}
}

func TestParseDuration(t *testing.T) {
	tests := []struct {
		in   string
		want time.Duration
		err  string
	}{
		{"2s", 2 * time.Second, ""},
		{"10m", 10 * time.Minute, ""},
		{"500ms", 500 * time.Millisecond, ""},
		{"2us", 2 * time.Microsecond, ""},
		{"0s", 0, ""},
		{"2", 0, "has no unit"},
		{"2d", 0, "unknown unit"},
		{"1.5s", 0, "fraction"},
		{"1m30s", 0, "unknown unit"},
		{"-2s", 0, "negative"},
		{"9223372036854775807h", 0, "too large"},
	}
	for _, tt := range tests {
		got, err := ParseDuration(tt.in)
		checkParse(t, "ParseDuration", tt.in, got, tt.want, err, tt.err)
	}
}

func checkParse[T comparable](t *testing.T, name, in string, got, want T, err error, wantErr string) {
	t.Helper()
	switch {
	case wantErr == "" && (err != nil || got != want):
		t.Errorf("%s(%q) = %v, %v, want %v", name, in, got, err, want)
	case wantErr != "" && (err == nil || !strings.Contains(err.Error(), wantErr)):
		t.Errorf("%s(%q) = %v, error %v, want an error with %q", name, in, got, err, wantErr)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"16KiB", "2.6GHz", "2s", "", "-1", "1 B", "K"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, _, err := ParseBytes(s); err == nil {
			if n < 0 {
				t.Errorf("ParseBytes(%q) = %d", s, n)
			}
			if back, notice, err := ParseBytes(FormatBytes(n)); err != nil || back != n || notice != "" {
				t.Errorf("ParseBytes(FormatBytes(%d)) = %d, %q, %v", n, back, notice, err)
			}
		}
		if n, err := ParseFrequency(s); err == nil && n <= 0 {
			t.Errorf("ParseFrequency(%q) = %d", s, n)
		}
		if d, err := ParseDuration(s); err == nil && d < 0 {
			t.Errorf("ParseDuration(%q) = %d", s, d)
		}
	})
}

func TestTable(t *testing.T) {
	kinds := map[Kind]bool{}
	for _, k := range Kinds() {
		kinds[k] = true
	}
	seen := map[ID]bool{}
	for _, r := range Table {
		if seen[r.ID] {
			t.Errorf("%s: two rows", r.ID)
		}
		seen[r.ID] = true
		if !kinds[r.Kind] || string(r.ID) != string(r.Kind)+"."+r.Attr {
			t.Errorf("%s: id is not KIND.ATTR of kind %q, attr %q", r.ID, r.Kind, r.Attr)
		}
		if r.Doc == "" || r.Disrupt == "" {
			t.Errorf("%s: no doc line or no disruption", r.ID)
		}
	}
}

func TestValue(t *testing.T) {
	if Unknown("x").IsKnown() || !Absent().IsKnown() || !Absent().IsAbsent() {
		t.Error("unknown and absent are confused")
	}
	for _, v := range []Value{Absent(), Bool(true), Bool(false), Int(0), Int(-1), Text(""), Text("0-3"), Text(`"`)} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var back Value
		if err := json.Unmarshal(b, &back); err != nil || back != v {
			t.Errorf("%v -> %s -> %v, %v", v, b, back, err)
		}
	}
	var v Value
	for _, bad := range []string{"1.5", "[]", "{}", "1e9999", "99999999999999999999"} {
		if err := json.Unmarshal([]byte(bad), &v); err == nil {
			t.Errorf("%s was read as %v", bad, v)
		}
	}
}

func TestFormat(t *testing.T) {
	tests := []struct {
		id   ID
		v    Value
		want string
	}{
		{HintSize, Int(16384), "16 KiB"},
		{HintSize, Int(100), "100 B"},
		{HintSize, Int(0), "0"},
		{HintSize, Absent(), "(unset)"},
		{MinKHz, Int(2_600_000), "2600 MHz"},
		{MinKHz, Int(2_600_500), "2600500 kHz"},
		{RXUsecs, Int(3), "3 us"},
		{DrainTimeout, Int(2000), "2s"},
		{Cooldown, Int(600_000), "10m"},
		{Cooldown, Int(0), "0s"},
		{Cooldown, Int(90_000), "90s"},
		{PinCPUs, Text("0-3"), "0-3"},
		{PinCPUs, Unknown("no permission"), "(not observable)"},
		{AdaptiveRX, Bool(true), "true"},
	}
	for _, tt := range tests {
		if got := Format(tt.id, tt.v); got != tt.want {
			t.Errorf("Format(%s, %#v) = %q, want %q", tt.id, tt.v, got, tt.want)
		}
	}
}
