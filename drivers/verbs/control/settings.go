package control

import (
	"github.com/rdmatune/rdmatune/param"
)

// list returns s as settings in the order of param.Table; nil s is all Absent.
func (s *Settings) list() []param.Setting {
	if s == nil {
		s = &Settings{}
	}
	return []param.Setting{
		{ID: param.HintSize, Value: intValue(s.Size)},
		{ID: param.HintLanes, Value: textOf(s.Lanes)},
		{ID: param.HintCompletion, Value: textOf(s.Completion)},
		{ID: param.HintOrdered, Value: boolOf(s.Ordered)},
		{ID: param.HintEagerMax, Value: intValue(s.EagerMax)},
		{ID: param.HintOverride, Value: boolOf(s.Override)},
		{ID: param.DrainTimeout, Value: intValue(s.DrainTimeoutMS)},
		{ID: param.Cooldown, Value: intValue(s.CooldownMS)},
	}
}

func textOf(s *string) param.Value {
	if s == nil {
		return param.Absent()
	}
	return param.Text(*s)
}

func boolOf(b *bool) param.Value {
	if b == nil {
		return param.Absent()
	}
	return param.Bool(*b)
}

func intValue(n *int64) param.Value {
	if n == nil {
		return param.Absent()
	}
	return param.Int(*n)
}

// set puts v at id; other IDs and unknown values leave s as it is.
func (s *Settings) set(id param.ID, v param.Value) {
	if !v.IsKnown() {
		return
	}
	var n *int64
	var t *string
	var b *bool
	if i, ok := v.AsInt(); ok {
		n = &i
	}
	if x, ok := v.AsText(); ok {
		t = &x
	}
	if x, ok := v.AsBool(); ok {
		b = &x
	}
	switch id {
	case param.HintSize:
		s.Size = n
	case param.HintLanes:
		s.Lanes = t
	case param.HintCompletion:
		s.Completion = t
	case param.HintOrdered:
		s.Ordered = b
	case param.HintEagerMax:
		s.EagerMax = n
	case param.HintOverride:
		s.Override = b
	case param.DrainTimeout:
		s.DrainTimeoutMS = n
	case param.Cooldown:
		s.CooldownMS = n
	}
}

// with returns s with the target-wide settings of want and then the new values of
// cs put in; nil when nothing is left.
func (s *Settings) with(want []param.Setting, cs []param.Change) *Settings {
	var out Settings
	if s != nil {
		out = *s
	}
	for _, w := range want {
		if w.Index == "" {
			out.set(w.ID, w.Value)
		}
	}
	for _, c := range cs {
		if c.Index == "" {
			out.set(c.ID, c.New)
		}
	}
	if out == (Settings{}) {
		return nil
	}
	return &out
}
