package audit

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// MaxReport bounds a report that is read back, in bytes.
const MaxReport = 64 << 20

// ReadReport reads the JSON of a report.
func ReadReport(b []byte) (*Report, error) {
	if len(b) > MaxReport {
		return nil, fmt.Errorf("more than %d MiB", MaxReport>>20)
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, err
	}
	if major, _, _ := strings.Cut(r.FormatVersion, "."); major != "1" {
		return nil, fmt.Errorf("format_version %.20q: this rdmatune reads 1.x", r.FormatVersion)
	}
	return &r, nil
}

// A Comparison is what two or more reports, as of the nodes of one job, disagree on.
type Comparison struct {
	FormatVersion string       `json:"format_version"`
	Reports       []string     `json:"reports"`
	Differences   []Difference `json:"differences"`
}

// A Difference is one variable that is not read alike everywhere.
type Difference struct {
	Library string  `json:"library"`
	Name    string  `json:"name"`
	Values  []Where `json:"values"`
}

// A Where is one reading and who has it.
type Where struct {
	Parsed Parsed   `json:"parsed"`
	Origin string   `json:"origin"`
	In     []string `json:"in"` // "node1 process 4711"
}

// Compare compares reports, each with a name for people. What a report does not list is
// the library's default there.
func Compare(names []string, reports []*Report) *Comparison {
	c := &Comparison{FormatVersion: FormatVersion, Reports: names, Differences: []Difference{}}
	type reader struct{ report, process int }
	values := map[string]map[reader]Value{} // by variable
	processes := map[reader]map[string]bool{}
	for i, r := range reports {
		note := func(pid int) map[string]bool {
			key := reader{i, pid}
			if processes[key] == nil {
				processes[key] = map[string]bool{}
			}
			return processes[key]
		}
		for _, v := range r.Variables {
			note(v.Process)[v.Library] = true
			if values[v.Name] == nil {
				values[v.Name] = map[reader]Value{}
			}
			values[v.Name][reader{i, v.Process}] = v
		}
		for _, m := range r.Modules {
			note(m.Process)[m.Library] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		var d Difference
		groups := map[string]*Where{}
		readers := slices.SortedFunc(maps.Keys(processes), func(a, b reader) int {
			if a.report != b.report {
				return a.report - b.report
			}
			return a.process - b.process
		})
		for _, key := range readers {
			v, ok := values[name][key]
			if !ok {
				row := VariableByName(name)
				if row == nil || !processes[key][row.Library] {
					continue // it has no such library
				}
				v = Value{Library: row.Library, Parsed: row.defaultValue(), Origin: "default"}
			}
			d.Library, d.Name = v.Library, name
			id := v.Parsed.String()
			if groups[id] == nil {
				groups[id] = &Where{Parsed: v.Parsed, Origin: v.Origin}
			}
			who := names[key.report]
			if key.process != 0 {
				who += " process " + strconv.Itoa(key.process)
			}
			groups[id].In = append(groups[id].In, who)
		}
		if len(groups) < 2 {
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(groups)) {
			d.Values = append(d.Values, *groups[id])
		}
		c.Differences = append(c.Differences, d)
	}
	return c
}
