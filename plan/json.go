package plan

import (
	"encoding/json"
	"fmt"
	"io"
	"sort"

	"github.com/hashicorp/hcl/v2"

	"github.com/rdmatune/rdmatune/param"
)

// FormatVersion is the version of the plan's JSON: a higher minor number adds
// members, a higher major number changes the meaning of one.
const FormatVersion = "1.2"

type jsonPlan struct {
	FormatVersion string       `json:"format_version"`
	Changes       []jsonChange `json:"changes"`
	Pending       []Note       `json:"pending"`
	Notes         []Note       `json:"notes"`
	Unreadable    []Note       `json:"unreadable"`
	Live          []Live       `json:"live"`
	Guards        []Note       `json:"guards"` // what is measured after the apply
	Diagnostics   []Diagnostic `json:"diagnostics"`
	Summary       Summary      `json:"summary"`
}

// jsonChange is all changes of one target. Before and After hold the changed
// attributes; null is unset or not observable.
type jsonChange struct {
	Address    string           `json:"address"`
	Workload   string           `json:"workload"`
	Kind       param.Kind       `json:"kind"`
	Name       string           `json:"name"`
	Label      string           `json:"label,omitempty"`
	Action     param.Action     `json:"action"`
	Before     map[string]any   `json:"before"`
	After      map[string]any   `json:"after"`
	Disruption param.Disruption `json:"disruption"`
	Reason     string           `json:"reason"`
	Origin     string           `json:"origin,omitempty"`
}

// A Diagnostic is a diagnostic in JSON.
type Diagnostic struct {
	Severity string `json:"severity"` // "error" or "warning"
	Summary  string `json:"summary"`
	Detail   string `json:"detail"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
}

// Diagnostics converts diagnostics for JSON; the result is never nil.
func Diagnostics(diags hcl.Diagnostics) []Diagnostic {
	out := make([]Diagnostic, 0, len(diags))
	for _, d := range diags {
		j := Diagnostic{Severity: "error", Summary: d.Summary, Detail: d.Detail}
		if d.Severity == hcl.DiagWarning {
			j.Severity = "warning"
		}
		if d.Subject != nil {
			j.File, j.Line, j.Column = d.Subject.Filename, d.Subject.Start.Line, d.Subject.Start.Column
		}
		out = append(out, j)
	}
	return out
}

// WriteJSON writes the plan as one JSON document. warnings are diagnostics from
// before the plan, such as the spec's.
func (p *Plan) WriteJSON(w io.Writer, warnings hcl.Diagnostics) error {
	doc := jsonPlan{
		FormatVersion: FormatVersion, Changes: []jsonChange{}, Pending: append([]Note{}, p.Pending...),
		Notes: append([]Note{}, p.Notes...), Unreadable: append([]Note{}, p.Unreadable...), Live: append([]Live{}, p.Live...),
		Guards: append([]Note{}, p.guardNotes()...), Summary: p.Summary(),
		Diagnostics: Diagnostics(append(append(hcl.Diagnostics{}, warnings...), p.Diags...)),
	}
	for _, g := range p.groups() {
		c := jsonChange{
			Address: Address(g.workload, g.target), Workload: g.workload, Kind: g.target.Kind, Name: g.target.Name, Label: g.target.Label,
			Action: g.action, Before: map[string]any{}, After: map[string]any{},
			Disruption: param.None, Reason: g.changes[0].Reason, Origin: g.changes[0].Origin,
		}
		for _, l := range g.lines() {
			c.Before[l.name], c.After[l.name] = l.old, l.new
			if l.disrupt != param.None {
				c.Disruption = l.disrupt
			}
		}
		doc.Changes = append(doc.Changes, c)
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// A line is what a person or a program sees as one changed attribute: threads of a
// process with the same way to go are one line.
type line struct {
	name     string
	id       param.ID
	old, new param.Value
	count    int // threads
	disrupt  param.Disruption
	drift    bool
	origin   string
}

func (g group) lines() []line {
	var out []line
	at := map[string]int{}
	for _, c := range g.changes {
		l := line{name: attr(c.ID), id: c.ID, old: c.Old, new: c.New, count: 1, disrupt: c.Disrupt, drift: c.Drift, origin: c.Origin}
		key := l.name
		switch {
		case c.Target.Kind == param.Pinning:
			key = fmt.Sprintf("%v\x00%v", c.Old, c.New)
		case c.Index != "":
			l.name = fmt.Sprintf("connection[%s].%s", c.Index, l.name)
			key = l.name
		}
		if i, ok := at[key]; ok {
			out[i].count++
			continue
		}
		at[key] = len(out)
		out = append(out, l)
	}
	if g.target.Kind == param.Pinning && len(out) > 1 {
		sort.SliceStable(out, func(i, j int) bool { return out[i].count > out[j].count })
		for i := 1; i < len(out); i++ {
			out[i].name = fmt.Sprintf("cpus#%d", i+1) // names are keys of before and after
		}
	}
	return out
}
