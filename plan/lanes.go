package plan

import (
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/spec"
)

// lanesOf is what wanted makes of a connection's lanes: two where it asks for them and
// has a hint above 0, else one.
func lanesOf(wanted []spec.Setting) spec.Setting {
	lanes := spec.Setting{Setting: param.Setting{ID: param.HintLanes}}
	hint := false
	for _, s := range wanted {
		if n, ok := s.Value.AsInt(); ok && s.ID == param.HintSize {
			hint = n > 0
		}
		if s.ID == param.HintLanes {
			lanes = s
		}
	}
	if text, ok := lanes.Value.AsText(); !hint || !ok || text == "" {
		lanes.Value = param.Text("single")
	}
	return lanes
}
