package control

import (
	"github.com/rdmatune/rdmatune/param"
)

// list returns s as settings in the order of param.Table; nil s is all Absent.
func (s *Settings) list() []param.Setting {
	if s == nil {
		s = &Settings{}
	}
	out := []param.Setting{
		{ID: param.HintSize, Value: intValue(s.Size)},
		{ID: param.HintCompletion, Value: param.Absent()},
		{ID: param.HintEagerMax, Value: intValue(s.EagerMax)},
		{ID: param.HintOverride, Value: param.Absent()},
		{ID: param.DrainTimeout, Value: intValue(s.DrainTimeoutMS)},
		{ID: param.Cooldown, Value: intValue(s.CooldownMS)},
	}
	if s.Completion != nil {
		out[1].Value = param.Text(*s.Completion)
	}
	if s.Override != nil {
		out[3].Value = param.Bool(*s.Override)
	}
	return out
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
	if i, ok := v.AsInt(); ok {
		n = &i
	}
	switch id {
	case param.HintSize:
		s.Size = n
	case param.HintEagerMax:
		s.EagerMax = n
	case param.DrainTimeout:
		s.DrainTimeoutMS = n
	case param.Cooldown:
		s.CooldownMS = n
	case param.HintCompletion:
		s.Completion = nil
		if t, ok := v.AsText(); ok {
			s.Completion = &t
		}
	case param.HintOverride:
		s.Override = nil
		if b, ok := v.AsBool(); ok {
			s.Override = &b
		}
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
