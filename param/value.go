package param

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// A Value is what a setting has. It is small, closed and comparable with ==, so
// that a difference needs no reflection. The zero Value is unknown.
type Value struct {
	kind valueKind
	n    int64
	s    string
}

type valueKind uint8

const (
	unknown valueKind = iota
	absent
	boolean
	integer
	text
)

// Unknown is a value that could not be observed; reason says why, for a person.
// Two unknown values with different reasons are not equal: compare with IsKnown.
func Unknown(reason string) Value { return Value{kind: unknown, s: reason} }

// Absent is the value of a setting that is there but unset, such as an empty
// scaling_governor or a hint that nobody gave. Absent is an original like any
// other, but it is never written to a kernel file.
func Absent() Value { return Value{kind: absent} }

// Bool returns a boolean value.
func Bool(b bool) Value {
	v := Value{kind: boolean}
	if b {
		v.n = 1
	}
	return v
}

// Int returns an integer value, in the unit that Table states for its ID.
func Int(n int64) Value { return Value{kind: integer, n: n} }

// Text returns a value that is text: a governor, a CPU list in canonical kernel form.
func Text(s string) Value { return Value{kind: text, s: s} }

// IsKnown reports whether the value was observed (Absent is known).
func (v Value) IsKnown() bool { return v.kind != unknown }

// IsAbsent reports whether the setting is there but unset.
func (v Value) IsAbsent() bool { return v.kind == absent }

// Reason says why the value is unknown; it is empty for a known value.
func (v Value) Reason() string {
	if v.kind == unknown {
		return v.s
	}
	return ""
}

// AsInt returns the integer and whether v is one.
func (v Value) AsInt() (int64, bool) { return v.n, v.kind == integer }

// AsBool returns the boolean and whether v is one.
func (v Value) AsBool() (value, ok bool) { return v.n != 0, v.kind == boolean }

// AsText returns the text and whether v is one.
func (v Value) AsText() (string, bool) { return v.s, v.kind == text }

// String returns the bare form, without a unit; Table's Format adds the unit.
func (v Value) String() string {
	switch v.kind {
	case absent:
		return "(unset)"
	case boolean:
		return strconv.FormatBool(v.n != 0)
	case integer:
		return strconv.FormatInt(v.n, 10)
	case text:
		return v.s
	}
	return "(not observable)"
}

// MarshalJSON writes booleans, numbers and strings as themselves and Absent and
// Unknown as null: a reader of the JSON must never take "not known" for 0.
func (v Value) MarshalJSON() ([]byte, error) {
	switch v.kind {
	case boolean:
		return json.Marshal(v.n != 0)
	case integer:
		return json.Marshal(v.n)
	case text:
		return json.Marshal(v.s)
	}
	return []byte("null"), nil
}

// UnmarshalJSON reads what MarshalJSON wrote; null becomes Absent, since only
// known values are ever stored.
func (v *Value) UnmarshalJSON(b []byte) error {
	s := strings.TrimSpace(string(b))
	switch {
	case s == "null":
		*v = Absent()
	case s == "true" || s == "false":
		*v = Bool(s == "true")
	case strings.HasPrefix(s, `"`):
		var t string
		if err := json.Unmarshal(b, &t); err != nil {
			return err
		}
		*v = Text(t)
	default:
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return fmt.Errorf("value %.40q is not an integer, string, boolean or null", s)
		}
		*v = Int(n)
	}
	return nil
}
