package spec

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"path"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/param"
)

// A parser turns an evaluated, wholly known and not null value into the canonical
// one that `self` shows. notice is for what is accepted but should be written
// otherwise.
type parser func(v cty.Value) (out cty.Value, notice string, err error)

func textValue(v cty.Value) (cty.Value, string, error) {
	if v.Type() != cty.String {
		return v, "", fmt.Errorf("a string is required, found %s", v.Type().FriendlyName())
	}
	return v, "", nil
}

func boolValue(v cty.Value) (cty.Value, string, error) {
	if v.Type() != cty.Bool {
		return v, "", fmt.Errorf("true or false is required, found %s", describe(v))
	}
	return v, "", nil
}

func oneOf(words ...string) parser {
	return func(v cty.Value) (cty.Value, string, error) {
		if v.Type() == cty.String && slices.Contains(words, v.AsString()) {
			return v, "", nil
		}
		hint := ""
		if v.Type() == cty.String {
			hint = suggest(v.AsString(), words)
		}
		return v, "", fmt.Errorf("one of %s is required, found %s%s", quoteAll(words), describe(v), hint)
	}
}

// glob is a text that path.Match takes as a pattern.
func glob(v cty.Value) (cty.Value, string, error) {
	out, notice, err := textValue(v)
	if err == nil {
		_, err = path.Match(v.AsString(), "")
	}
	if errors.Is(err, path.ErrBadPattern) {
		err = fmt.Errorf("%q is not a glob: a bracket is not closed, or a backslash escapes nothing", v.AsString())
	}
	return out, notice, err
}

// globMap is a map of globs.
func globMap(v cty.Value) (cty.Value, string, error) {
	out, notice, err := textMap(v)
	if err != nil {
		return out, notice, err
	}
	for it := out.ElementIterator(); it.Next(); {
		k, e := it.Element()
		if _, _, err := glob(e); err != nil {
			return out, "", fmt.Errorf("element %q: %w", k.AsString(), err)
		}
	}
	return out, notice, nil
}

func textMap(v cty.Value) (cty.Value, string, error) {
	m, err := convert.Convert(v, cty.Map(cty.String))
	if err != nil {
		return v, "", fmt.Errorf("a map of strings is required, found %s", describe(v))
	}
	for it := m.ElementIterator(); it.Next(); {
		if k, e := it.Element(); e.IsNull() {
			return v, "", fmt.Errorf("element %q is null", k.AsString())
		}
	}
	return m, "", nil
}

// cpuList accepts a list such as "0-3,8" or a single number, and canonicalises it.
func cpuList(v cty.Value) (cty.Value, string, error) {
	if v.Type() == cty.Number {
		n, err := integer(v, 0, cpulist.MaxCPUs-1)
		if err != nil {
			return v, "", err
		}
		return cty.StringVal(fmt.Sprint(n)), "", nil
	}
	if v.Type() != cty.String {
		return v, "", fmt.Errorf("a CPU list such as \"0-3,8\" is required, found %s", v.Type().FriendlyName())
	}
	set, err := cpulist.ParseStrict(v.AsString())
	if err != nil {
		return v, "", err
	}
	if set.IsEmpty() {
		return v, "", errors.New("the CPU list is empty; leave the block out to leave the CPUs alone")
	}
	return cty.StringVal(cpulist.Format(set)), "", nil
}

func frequency(v cty.Value) (cty.Value, string, error) {
	if v.Type() != cty.String {
		return v, "", fmt.Errorf("a frequency such as \"2600MHz\", or \"base\", \"max\" or \"min\" is required, found %s", describe(v))
	}
	switch v.AsString() {
	case "base", "max", "min":
		return v, "", nil
	}
	_, err := param.ParseFrequency(v.AsString())
	return v, "", err
}

// hintSize accepts bytes as a number or as a string with a unit.
func hintSize(v cty.Value) (cty.Value, string, error) {
	switch v.Type() {
	case cty.Number:
		n, err := integer(v, 0, param.MaxHint)
		if err != nil {
			return v, "", err
		}
		return cty.NumberIntVal(n), "", nil
	case cty.String:
		n, notice, err := param.ParseBytes(v.AsString())
		if err != nil {
			return v, "", err
		}
		if n > param.MaxHint {
			return v, "", fmt.Errorf("%q is %d bytes; a message has at most %s", v.AsString(), n, param.FormatBytes(param.MaxHint))
		}
		return cty.NumberIntVal(n), notice, nil
	}
	return v, "", fmt.Errorf("a size such as 16384 or \"16KiB\" is required, found %s", v.Type().FriendlyName())
}

func count32(v cty.Value) (cty.Value, string, error) {
	if v.Type() != cty.Number {
		return v, "", fmt.Errorf("a whole number is required, found %s", describe(v))
	}
	_, err := integer(v, 0, math.MaxUint32)
	return v, "", err
}

// duration keeps a duration as a number of milliseconds, at least 1 unless zero.
func duration(v cty.Value) (cty.Value, string, error) {
	if v.Type() != cty.String {
		return v, "", fmt.Errorf("a duration such as \"2s\" is required, found %s", describe(v))
	}
	d, err := param.ParseDuration(v.AsString())
	if err != nil {
		return v, "", err
	}
	if d%time.Millisecond != 0 {
		return v, "", fmt.Errorf("duration %q is finer than 1ms", v.AsString())
	}
	return cty.NumberIntVal(d.Milliseconds()), "", nil
}

// latency is a duration in whole microseconds, in the form that the driver reads back.
func latency(v cty.Value) (cty.Value, string, error) {
	if v.Type() != cty.String {
		return v, "", fmt.Errorf("a duration such as \"2us\" is required, found %s", describe(v))
	}
	d, err := param.ParseDuration(v.AsString())
	if err == nil && d > time.Second {
		err = fmt.Errorf("%s is out of range; at most 1s is allowed", v.AsString())
	}
	if err != nil {
		return v, "", err
	}
	return cty.StringVal(fmt.Sprintf("%dus", d.Microseconds())), "", nil
}

// integer returns v as an integer within [low, high].
func integer(v cty.Value, low, high int64) (int64, error) {
	f := v.AsBigFloat()
	n, acc := f.Int64()
	switch {
	case f.IsInf():
		return 0, errors.New("infinity is not a value here")
	case !f.IsInt():
		return 0, fmt.Errorf("%s is not a whole number", f.Text('f', -1))
	case acc != big.Exact || n < low || n > high:
		return 0, fmt.Errorf("%s is out of range; %d to %d is allowed", f.Text('f', -1), low, high)
	}
	return n, nil
}

// describe names a value for an error: the text or number itself, else its type.
func describe(v cty.Value) string {
	switch {
	case v.Type() == cty.String:
		return fmt.Sprintf("%.60q", v.AsString())
	case v.Type() == cty.Number:
		return v.AsBigFloat().Text('f', -1)
	case v.Type() == cty.Bool:
		return fmt.Sprint(v.True())
	}
	return v.Type().FriendlyName()
}

func quoteAll(words []string) string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = fmt.Sprintf("%q", w)
	}
	return strings.Join(q, ", ")
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
