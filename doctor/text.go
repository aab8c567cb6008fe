package doctor

import (
	"fmt"
	"io"
	"strings"
)

// WriteText writes the report for a person. What is fine takes one line each.
func (r *Report) WriteText(out io.Writer) error {
	var b strings.Builder
	for _, level := range []Level{Problem, Warning, Unknown} {
		for _, g := range r.fold(level) {
			writeFindings(&b, g)
		}
	}
	if fine := r.fold(Fine); len(fine) > 0 {
		b.WriteString("Fine:\n")
		for _, g := range fine {
			fmt.Fprintf(&b, "  %s, %s: %s\n", g[0].Check, subjects(g), g[0].Message)
		}
	}
	titles := map[string]string{"use": "In its favour, if so", "leave": "Against it, if so", "question": "Questions"}
	for _, j := range r.Workloads {
		fmt.Fprintf(&b, "\nA hint for %s:\n", j.Workload)
		last := ""
		for _, v := range j.Verdicts {
			if v.Group != last {
				fmt.Fprintf(&b, "  %s:\n", titles[v.Group])
				last = v.Group
			}
			fmt.Fprintf(&b, "    %s: %s (%s)\n", v.Question, v.Answer, strings.Join(v.Evidence, "; "))
		}
	}
	fmt.Fprintf(&b, "\nProblems: %d, warnings: %d, unknown: %d, fine: %d.\n", r.Count(Problem), r.Count(Warning), r.Count(Unknown), r.Count(Fine))
	_, err := io.WriteString(out, b.String())
	return err
}

// fold puts findings of a level that say the same of several subjects together.
func (r *Report) fold(level Level) [][]Finding {
	var out [][]Finding
	at := map[[4]string]int{}
	for _, f := range r.Findings {
		if f.Level != level {
			continue
		}
		key := [4]string{f.Check, f.Message, f.Why, f.Do}
		if i, ok := at[key]; ok {
			out[i] = append(out[i], f)
			continue
		}
		at[key] = len(out)
		out = append(out, []Finding{f})
	}
	return out
}

// subjects names the subjects of findings that were folded.
func subjects(fs []Finding) string {
	const most = 3
	names := make([]string, 0, most)
	for _, f := range fs[:min(len(fs), most)] {
		names = append(names, f.Subject)
	}
	text := strings.Join(names, "; ")
	if more := len(fs) - most; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// writeFindings writes findings that say the same, with the evidence of the first.
func writeFindings(b *strings.Builder, fs []Finding) {
	f := fs[0]
	level := strings.ToUpper(string(f.Level)[:1]) + string(f.Level)[1:]
	fmt.Fprintf(b, "%s: %s, %s: %s\n", level, f.Check, subjects(fs), f.Message)
	for _, ev := range f.Evidence {
		fmt.Fprintf(b, "  %s = %s\n", ev.Path, ev.Value)
	}
	if f.Why != "" {
		fmt.Fprintf(b, "  Why: %s.\n", f.Why)
	}
	if f.Do != "" {
		fmt.Fprintf(b, "  Do: %s.\n", f.Do)
	}
	b.WriteByte('\n')
}
