package audit

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/rdmatune/rdmatune/param"
)

// A Parsed is what a library makes of a text.
type Parsed struct {
	Number *big.Int // nil when it is no number
	Word   string   // "inf", "auto", or a text that is taken as it is
	// Rejected says why the library takes nothing of it.
	Rejected string
	// KeepsDefault says that a rejected text leaves the default; else the library fails.
	KeepsDefault bool
	// Trap says why Number is not what the text means to a person.
	Trap string
}

// MarshalJSON gives a number, a text, or null for what is rejected.
func (p Parsed) MarshalJSON() ([]byte, error) {
	switch {
	case p.Number != nil:
		return p.Number.MarshalJSON()
	case p.Word != "":
		return json.Marshal(p.Word)
	}
	return []byte("null"), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *Parsed) UnmarshalJSON(b []byte) error {
	*p = Parsed{}
	if string(b) == "null" {
		return nil
	}
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &p.Word)
	}
	n, ok := new(big.Int).SetString(string(b), 10)
	if !ok || len(b) > 40 {
		return fmt.Errorf("%.40q is no whole number", b)
	}
	p.Number = n
	return nil
}

// String is the number or text for a person.
func (p Parsed) String() string {
	switch {
	case p.Number != nil:
		return p.Number.String()
	case p.Word != "":
		return p.Word
	}
	return "(nothing)"
}

// Int64 returns the number when it is one of 64 bits.
func (p Parsed) Int64() (int64, bool) {
	if p.Number == nil || !p.Number.IsInt64() {
		return 0, false
	}
	return p.Number.Int64(), true
}

// equal compares what two texts are read as.
func (p Parsed) equal(q Parsed) bool { return p.String() == q.String() }

func whole(n int64) Parsed { return Parsed{Number: big.NewInt(n)} }

// A parser turns a value into what its library reads. base says what kind of number a
// variable holds; bytes is true for sizes, whose units are a trap.
type parser func(text string, sizes bool) Parsed

// meant is what a person means by a size: bytes with or without a unit. It is false for
// what has no such meaning.
func meant(text string) (int64, bool) {
	n, _, err := param.ParseBytes(strings.TrimSpace(text))
	return n, err == nil
}

// trap compares what is read with what is meant.
func trap(p Parsed, text, rest string, sizes bool) Parsed {
	switch n, ok := meant(text); {
	case p.Number == nil || p.Trap != "":
	case strings.EqualFold(strings.TrimSpace(text), "inf"):
		p.Trap = fmt.Sprintf("%q is read as %s, not as unlimited", text, p.Number)
	case sizes && ok && p.Number.Cmp(big.NewInt(n)) != 0:
		p.Trap = fmt.Sprintf("%q is read as %s, not as %d: this library takes %s", text, p.Number, n, ignored(rest))
	case rest != "" && !ok:
		p.Trap = fmt.Sprintf("%q is read as %s: %q after the number is ignored", text, p.Number, rest)
	case p.Number.Sign() < 0 && sizes:
		p.Trap = fmt.Sprintf("%q is no size", text)
	}
	return p
}

func ignored(rest string) string {
	if rest == "" {
		return "a leading 0 for octal, 0x for hexadecimal"
	}
	return "no units and ignores " + strconv.Quote(rest)
}

// parseC reads as NCCL does: strtoll with base 0. Text after the number is ignored, a
// text without a number is 0, and one out of range leaves the default. Empty is unset.
func parseC(text string, sizes bool) Parsed {
	if text == "" {
		return Parsed{Rejected: "empty: the default stays", KeepsDefault: true}
	}
	n, used, overflow := strtol(text)
	if overflow {
		return Parsed{Rejected: "out of range: the default stays", KeepsDefault: true}
	}
	return trap(whole(n), text, text[used:], sizes)
}

// parseSaturating reads as libfabric does: strtol with base 0, and no error at all.
func parseSaturating(text string, sizes bool) Parsed {
	n, used, overflow := strtol(text)
	return trap(tooLarge(whole(n), text, overflow), text, text[used:], sizes)
}

// tooLarge notes that a number was out of range.
func tooLarge(p Parsed, text string, overflow bool) Parsed {
	if overflow {
		p.Trap = fmt.Sprintf("%q is read as %s: it is out of range", text, p.Number)
	}
	return p
}

// parseAtoi reads as Mooncake does: atoi(3), decimal only.
func parseAtoi(text string, sizes bool) Parsed {
	s := strings.TrimLeft(text, " \t\n\v\f\r")
	end := 0
	if end < len(s) && (s[end] == '-' || s[end] == '+') {
		end++
	}
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(strings.TrimPrefix(s[:end], "+"), 10, 32)
	if err != nil && end > 1 {
		return Parsed{Rejected: "out of the range of an int, for which atoi has no defined result"}
	}
	return trap(whole(n), text, s[end:], sizes)
}

// parseUCX reads memory units as UCX does: inf and auto, else %ld and at most two
// characters of unit, of which the second must be B. What follows is ignored.
func parseUCX(text string, sizes bool) Parsed {
	if strings.EqualFold(text, "inf") || strings.EqualFold(text, "auto") {
		return Parsed{Word: strings.ToLower(text)}
	}
	n, unit, overflow, ok := scanLong(text)
	if !ok {
		return Parsed{Rejected: "UCX fails: expected memory units such as 16k, inf or auto"}
	}
	scale := map[byte]uint{'B': 0, 'K': 10, 'M': 20, 'G': 30, 'T': 40}
	shift := uint(0)
	rest := ""
	if unit != "" {
		s, known := scale[upper(unit[0])]
		if !known || len(unit) > 1 && upper(unit[1]) != 'B' {
			return Parsed{Rejected: fmt.Sprintf("UCX fails: %q is no unit that it knows (B, K, M, G, T, with or without B)", unit)}
		}
		shift, rest = s, unit[min(len(unit), 2):]
	}
	v := uint64(n) << shift // size_t arithmetic
	p := Parsed{Number: new(big.Int).SetUint64(v)}
	switch {
	case v == math.MaxUint64: // UCS_MEMUNITS_INF
		return Parsed{Word: "inf", Trap: fmt.Sprintf("%q wraps round to what UCX has for inf", text)}
	case v == math.MaxUint64-1: // UCS_MEMUNITS_AUTO
		return Parsed{Word: "auto", Trap: fmt.Sprintf("%q wraps round to what UCX has for auto", text)}
	case n < 0:
		p.Trap = fmt.Sprintf("%q is read as %s: a negative number wraps round", text, p.Number)
	case overflow || n<<shift>>shift != n:
		p.Trap = fmt.Sprintf("%q is read as %s: it does not fit into 64 bits", text, p.Number)
	}
	return trap(p, text, rest, sizes)
}

// parseRndv reads UCX_RNDV_THRESH, which in later releases may give the two distances a value each:
// intra:16k,inter:32k. The one between nodes is what counts here.
func parseRndv(text string, sizes bool) Parsed {
	if !strings.ContainsAny(text, ":,") {
		return parseUCX(text, sizes)
	}
	found := Parsed{Rejected: "it gives no value for inter"}
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, ":")
		p := parseUCX(value, sizes)
		switch {
		case !ok && found.Rejected != "":
			found = parseUCX(part, sizes)
		case ok && key != "intra" && key != "inter":
			return Parsed{Rejected: fmt.Sprintf("UCX fails: %q is neither intra nor inter", key)}
		case ok && p.Rejected != "":
			return p
		case key == "inter":
			found = p
		}
	}
	return found
}

// parseMCA reads as Open MPI does: strtoull with base 0, then one letter k, m or g; what
// follows is ignored, and so is any other unit. Empty is 0.
func parseMCA(text string, sizes bool) Parsed {
	n, used, overflow := strtol(text)
	p := Parsed{Number: new(big.Int).SetUint64(uint64(n))}
	if overflow {
		p.Number.SetUint64(math.MaxUint64)
	}
	p = tooLarge(p, text, overflow)
	rest := text[used:]
	if rest != "" && used > 0 {
		if shift, ok := map[byte]uint{'K': 10, 'M': 20, 'G': 30}[upper(rest[0])]; ok {
			p.Number.SetUint64(uint64(n) << shift)
			rest = rest[1:]
		}
	}
	if strings.HasPrefix(text, `"`) || strings.HasPrefix(text, "'") {
		p.Trap = fmt.Sprintf("%s is read as %s: the quotes are part of the value", text, p.Number)
	}
	if n < 0 {
		p.Trap = fmt.Sprintf("%q is read as %s: a negative number wraps round", text, p.Number)
	}
	if unit := strings.ToUpper(rest); unit == "B" || unit == "IB" {
		rest = "" // 16KB and 16KiB come out as they are meant
	}
	return trap(p, text, rest, sizes)
}

// parseScaled reads sizes as NVSHMEM does: a floating point number and one letter of
// unit; what follows is ignored.
func parseScaled(text string, sizes bool) Parsed {
	s := strings.TrimLeft(text, " \t\n\v\f\r")
	end := floatEnd(s)
	if strings.HasPrefix(strings.ToLower(s), "inf") || strings.HasPrefix(strings.ToLower(s), "nan") {
		return Parsed{Rejected: "NVSHMEM converts it from floating point, for which C defines no result"}
	}
	f, err := strconv.ParseFloat(s[:end], 64)
	if err != nil {
		return Parsed{Rejected: "NVSHMEM fails: no number"}
	}
	rest, shift := s[end:], uint(0)
	if rest != "" {
		unit, ok := map[byte]uint{'K': 10, 'M': 20, 'G': 30, 'T': 40}[upper(rest[0])]
		if !ok {
			return Parsed{Rejected: fmt.Sprintf("NVSHMEM fails: %q is none of k, m, g, t", rest[:1])}
		}
		shift, rest = unit, rest[1:]
	}
	v := math.Ceil(f * float64(uint64(1)<<shift))
	if v < 0 || v >= 1<<63 {
		return Parsed{Rejected: "NVSHMEM converts it from floating point to unsigned, for which C defines no result"}
	}
	if unit := strings.ToUpper(rest); unit == "B" || unit == "IB" {
		rest = ""
	}
	return trap(whole(int64(v)), text, rest, sizes)
}

// parseLong reads numbers as NVSHMEM does: strtol with base 0.
func parseLong(text string, _ bool) Parsed {
	n, used, overflow := strtol(text)
	p := trap(whole(n), text, text[used:], true)
	if overflow || used == 0 {
		p.Trap = fmt.Sprintf("%q is read as %d, with a message on standard error", text, n)
	}
	return p
}

// parseFlag reads switches as NVSHMEM does: 0, n and f at the start are off, anything
// else is on.
func parseFlag(text string, _ bool) Parsed {
	if text != "" && strings.ContainsRune("0NnFf", rune(text[0])) {
		return whole(0)
	}
	p := whole(1)
	if strings.EqualFold(text, "off") || text == "" {
		p.Trap = fmt.Sprintf("%q is read as on: only 0, n and f at the start are off", text)
	}
	return p
}

// parseText takes a text as it is.
func parseText(text string, _ bool) Parsed { return Parsed{Word: text} }

// parseHint reads rdmatune's own hint: strict, and what is rejected is not taken.
func parseHint(text string, _ bool) Parsed {
	n, _, err := param.ParseBytes(text) // K and KB count in 1024, as they are meant here
	switch {
	case err != nil:
		return Parsed{Rejected: err.Error()}
	case n > param.MaxHint:
		return Parsed{Rejected: "above " + param.FormatBytes(param.MaxHint)}
	}
	return whole(n)
}

// within rejects numbers outside lo to hi, as Mooncake ignores them.
func within(p parser, lo, hi int64) parser {
	return func(text string, sizes bool) Parsed {
		r := p(text, sizes)
		if r.Number != nil && (r.Number.Cmp(big.NewInt(lo)) < 0 || r.Number.Cmp(big.NewInt(hi)) > 0) {
			return Parsed{Rejected: fmt.Sprintf("read as %s, which is not between %d and %d: the default stays", r.Number, lo, hi), Trap: r.Trap, KeepsDefault: true}
		}
		return r
	}
}
