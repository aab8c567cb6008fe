package plan

import (
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/spec"
)

// lanesOf is what wanted makes of a connection's lanes, and whether lanes as they are
// differ from it. Without a hint above 0 there is one lane whatever is wanted.
func lanesOf(wanted []spec.Setting) (lanes spec.Setting, differ func(param.Value) bool) {
	one := true
	for _, s := range wanted {
		if n, ok := s.Value.AsInt(); ok && s.ID == param.HintSize {
			one = n == 0
		}
		if s.ID == param.HintLanes {
			lanes = s
		}
	}
	if one || lanes.ID == "" {
		return lanes, func(param.Value) bool { return false }
	}
	if lanes.Value.IsAbsent() {
		lanes.Value = param.Text("single")
	}
	return lanes, func(have param.Value) bool { return have.IsKnown() && have != lanes.Value }
}
