package audit

import (
	"fmt"
	"strconv"
)

// A Line is one variable that expresses a hint, or why a library cannot be told.
type Line struct {
	Library  string `json:"library"`
	Name     string `json:"name,omitempty"`
	Value    string `json:"value,omitempty"`
	Unit     string `json:"unit,omitempty"`
	Scope    string `json:"scope,omitempty"`
	Boundary string `json:"boundary,omitempty"`
	// NotExpressible says why the library cannot be told; there is no Name then.
	NotExpressible string `json:"not_expressible,omitempty"`
}

// An Expression says what to express.
type Expression struct {
	Workload  string
	Hint      *int64 // bytes; nil for none
	Libraries []string
	// Channels is how many channels NCCL uses for a point-to-point message; 0 when not
	// known, which is taken for one.
	Channels int
}

// Express returns what tells each library of the hint, in the order of Libraries.
func Express(e Expression) []Line {
	var out []Line
	for _, id := range e.Libraries {
		l := LibraryByID(id)
		if l == nil {
			continue
		}
		out = append(out, e.library(l)...)
	}
	return out
}

func (e Expression) library(l *Library) []Line {
	var out []Line
	if l.ID == "rdmatune" && e.Workload != "" {
		v := VariableByName("RDMATUNE_WORKLOAD")
		out = append(out, Line{Library: l.ID, Name: v.Name, Value: e.Workload, Unit: v.Unit, Scope: v.Scope})
	}
	not := func(why string) []Line { return append(out, Line{Library: l.ID, NotExpressible: why}) }
	switch {
	case e.Hint == nil:
		return not("the workload has no hint block: the hint is not managed")
	case *e.Hint == 0 && l.ID != "rdmatune":
		return not("the hint is 0, explicitly none: leave its thresholds unset")
	}
	before := len(out)
	for i := range Table {
		v := &Table[i]
		if v.Library != l.ID || !v.Hint() || v.fallback != "" || v.Name == "OMPI_MCA_btl_vader_eager_limit" {
			continue // the generic name and the present one are enough
		}
		line := Line{Library: l.ID, Name: v.Name, Value: v.express(*e.Hint), Unit: v.Unit, Scope: v.Scope, Boundary: v.Boundary}
		if v.Scope == "channel" {
			channels := int64(max(e.Channels, 1))
			line.Value = decimal((*e.Hint + channels - 1) / channels)
			if e.Channels == 0 {
				line.Boundary += "; not divided here, for the channels are not known"
			} else {
				line.Boundary += fmt.Sprintf("; divided by %d here", channels)
			}
		}
		out = append(out, line)
	}
	if len(out) == before {
		why := l.Note
		if l.ID == "ucc" {
			why = "through UCX: " + why
		}
		return not(why)
	}
	if l.ID == "nccl" {
		return not(l.Note)
	}
	return out
}

// Quote quotes a value for a POSIX shell where it needs to be.
func Quote(value string) string {
	safe := value != ""
	for _, c := range value {
		safe = safe && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' || c == '/' || c == ':')
	}
	if safe {
		return value
	}
	out := "'"
	for _, c := range value {
		if c == '\'' {
			out += `'\''`
			continue
		}
		out += string(c)
	}
	return out + "'"
}

// QuoteDotenv quotes a value for a dotenv file.
func QuoteDotenv(value string) string {
	if Quote(value) == value {
		return value
	}
	return strconv.Quote(value)
}
