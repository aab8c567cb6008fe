package cpulist

import (
	"errors"
	"strings"
	"testing"
)

func TestParseKernel(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"0-3,8-11\n", "0-3,8-11"},
		{"\n", ""},
		{"", ""},
		{"0-1\n\x00", "0-1"},
		{"5\n" + strings.Repeat("\x00", 4090), "5"},
		{"              (null)\n", ""},
		{"0-15:2/4", "0-1,4-5,8-9,12-13"},
		{"0-6:2/4", "0-1,4-5"},
		{"3-3", "3"},
		{"0,0,1", "0-1"},
		{" 1 , 2 ", "1-2"},
		{"1,,2", "1-2"}, // as bitmap_parselist
		{"8191", "8191"},
		{"4,2,3", "2-4"},
	} {
		got, err := ParseKernel(tc.text)
		if err != nil || Format(got) != tc.want {
			t.Errorf("ParseKernel(%.20q) = %q, %v; want %q", tc.text, Format(got), err, tc.want)
		}
	}
	for _, bad := range []string{
		"5-3", "1,2abc,3", "1-", "-1", `"0-3"`, "8192", "0-99999999999999999999", "1-2-3", "0x3", "all", "N", "0-N",
		"0-7:0/2", "0-7:3/2", "0-7:1", "0-7:1/0", "0\x001", "2-7,^4", "1 2",
	} {
		if got, err := ParseKernel(bad); err == nil {
			t.Errorf("ParseKernel(%q) = %q, want an error", bad, Format(got))
		}
	}
}

func TestParseKernelN(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"all", "0-127"}, {"ALL", "0-127"}, {"4-N", "4-127"}, {"N", "127"}, {"0-N:1/64", "0,64"}, {"all:1/2,1", ""},
	} {
		got, err := ParseKernelN(tc.text, 127)
		if err != nil {
			t.Errorf("ParseKernelN(%q): %v", tc.text, err)
		}
		if tc.want != "" && Format(got) != tc.want {
			t.Errorf("ParseKernelN(%q) = %q, want %q", tc.text, Format(got), tc.want)
		}
	}
}

func TestParseStrict(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"0-3,8", "0-3,8"}, {" 2 , 3 ", "2-3"}, {"3-3", "3"}, {"5", "5"}, {"18,16,17", "16-18"}, {"", ""}, {"  ", ""},
	} {
		got, err := ParseStrict(tc.text)
		if err != nil || Format(got) != tc.want {
			t.Errorf("ParseStrict(%q) = %q, %v; want %q", tc.text, Format(got), err, tc.want)
		}
	}
	for _, tc := range []struct {
		text   string
		offset int
		says   string
	}{
		{"2-7,^4", 4, "cpuset_subtract"},
		{"2-7, !4", 5, "cpuset_subtract"},
		{`"2-4"`, 0, "quotes"},
		{"7-2", 0, "write 2-7"},
		{"1,,2", 2, "nothing between"},
		{"0-3,", 4, "nothing between"},
		{"1,2abc,3", 2, "neither a CPU"},
		{"18,16-17,0x", 9, "mask"},
		{"4-N", 0, "command line"},
		{"all", 0, "node.cpus.online"},
		{"0-15:2/4", 0, "stride"},
		{"0,9000", 2, "neither a CPU below 8192"},
		{"1 2", 0, "neither a CPU"},
		{"-1", 0, "neither a CPU"},
	} {
		_, err := ParseStrict(tc.text)
		se, ok := errors.AsType[*SyntaxError](err)
		if !ok || se.Offset != tc.offset || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("ParseStrict(%q): %v; want %q at offset %d", tc.text, err, tc.says, tc.offset)
		}
	}
}

func TestMasks(t *testing.T) {
	for _, tc := range []struct {
		list  string
		width int
		mask  string
	}{
		{"0-11", 12, "fff"},
		{"0-39", 80, "0000,000000ff,ffffffff"},
		{"0-79", 80, "ffff,ffffffff,ffffffff"},
		{"63-64,100,223", 224, "80000000,00000000,00000000,00000010,00000001,80000000,00000000"},
		{"", 8, "00"},
		{"40", 8, "100,00000000"},
	} {
		set, err := ParseKernel(tc.list)
		if err != nil {
			t.Fatal(err)
		}
		if got := FormatMask(set, tc.width); got != tc.mask {
			t.Errorf("FormatMask(%s, %d) = %s, want %s", tc.list, tc.width, got, tc.mask)
		}
		if back, err := ParseMask(tc.mask + "\n"); err != nil || !back.Equals(set) {
			t.Errorf("ParseMask(%s) = %s, %v; want %s", tc.mask, Format(back), err, tc.list)
		}
	}
	for _, bad := range []string{"0x3", "g", "123456789", "1,,1", "+1", strings.Repeat("1,", 256) + "1"} {
		if got, err := ParseMask(bad); err == nil {
			t.Errorf("ParseMask(%.20q) = %s, want an error", bad, Format(got))
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"0-3,8", "0-15:2/4", "all", "N", "(null)", "1,,2", "5-3", "0\x00", "ffff,0000ffff", "2-7,^4", "0-8191:1/1,0-8191"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, parse := range map[string]func(string) (Set, error){
			"kernel": ParseKernel,
			"N":      func(s string) (Set, error) { return ParseKernelN(s, 100) },
			"strict": ParseStrict,
		} {
			set, err := parse(text)
			if err != nil {
				continue
			}
			again, err := ParseStrict(Format(set))
			if err != nil || !again.Equals(set) {
				t.Errorf("%s: %q is %q, which reads back as %q, %v", name, text, Format(set), Format(again), err)
			}
		}
		if set, err := ParseMask(text); err == nil {
			if again, err := ParseMask(FormatMask(set, 1)); err != nil || !again.Equals(set) {
				t.Errorf("mask %q is %q, which does not read back: %v", text, Format(set), err)
			}
		}
	})
}
