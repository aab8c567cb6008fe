package audit

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/rdmatune/rdmatune/internal/printable"
)

// WriteText writes the report for a person: the variables, then what was found.
func (r *Report) WriteText(out io.Writer) error {
	var b strings.Builder
	if r.Hint != nil {
		fmt.Fprintf(&b, "The spec's hint for %s is %d bytes.\n\n", r.Workload, *r.Hint)
	}
	if len(r.Command) > 0 {
		fmt.Fprintf(&b, "%s\n", printable.Line(strings.Join(r.Command, " ")))
		r.writeProcess(&b, 0)
	}
	for _, p := range r.Processes {
		fmt.Fprintf(&b, "process %d %s\n", p.PID, printable.Line(p.Comm))
		if p.Err != "" {
			fmt.Fprintf(&b, "  (not observable): %s\n", p.Err)
		}
		r.writeProcess(&b, p.PID)
	}
	if len(r.Processes) == 0 && len(r.Command) == 0 {
		b.WriteString("No process to audit.\n")
	}
	if len(r.Findings) > 0 {
		b.WriteString("\nFindings:\n")
	}
	for _, f := range r.Findings {
		where := ""
		if f.Process != 0 {
			where = fmt.Sprintf("process %d: ", f.Process)
		}
		name := f.Variable
		if name != "" {
			name += ": "
		}
		fmt.Fprintf(&b, "  %s: %s%s%s", f.Severity, where, name, f.Message)
		if f.Do != "" {
			fmt.Fprintf(&b, " -> %s", f.Do)
		}
		b.WriteByte('\n')
	}
	for i, n := range r.Notes {
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "Note: %s.\n", n)
	}
	_, err := io.WriteString(out, lines(b.String()))
	return err
}

// writeProcess writes the libraries and variables of one process.
func (r *Report) writeProcess(b *strings.Builder, pid int) {
	for _, m := range r.Modules {
		if m.Process != pid {
			continue
		}
		fmt.Fprintf(b, "  %s: %s (version %s), %s: %s", m.Library, m.Path, cmp.Or(m.Version, "not known"), hintSymbol, m.Symbol)
		if m.Note != "" {
			fmt.Fprintf(b, " (%s)", m.Note)
		}
		b.WriteByte('\n')
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	below := [][]string{nil} // what stands below each row
	fmt.Fprintln(w, "  VARIABLE\tREAD AS\tUNIT\tFROM")
	for _, v := range r.Variables {
		if v.Process == pid {
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", v.Name, printable.Line(v.Parsed.String()), v.Unit, printable.Line(v.Origin))
			below = append(below, v.losers())
		}
	}
	w.Flush()
	rows := len(below) - 1
	for line := range strings.Lines(table.String()) {
		if rows > 0 {
			b.WriteString(strings.TrimRight(line, " \n") + "\n" + strings.Join(below[0], ""))
		}
		below = below[1:]
	}
	if rows == 0 {
		b.WriteString("  no variable that is audited is set\n")
	}
}

// losers are lines for the candidates of v that are not plainly what is read.
func (v *Value) losers() []string {
	var out []string
	for _, c := range v.Candidates {
		if c.Wins && c.Text == v.Parsed.String() && c.Why == "" {
			continue
		}
		verdict, why := "loses", ""
		if c.Wins {
			verdict = "wins"
		}
		if c.Why != "" {
			why = " (" + c.Why + ")"
		}
		out = append(out, fmt.Sprintf("    %s: %s says %s%s\n", verdict, printable.Line(c.Origin), printable.Line(c.Text), why))
	}
	return out
}

// WriteText writes the comparison for a person.
func (c *Comparison) WriteText(out io.Writer) error {
	var b strings.Builder
	if len(c.Differences) == 0 {
		fmt.Fprintf(&b, "%s read every audited variable alike.\n", strings.Join(c.Reports, ", "))
	}
	for _, d := range c.Differences {
		fmt.Fprintf(&b, "%s (%s)\n", d.Name, d.Library)
		for _, v := range d.Values {
			const most = 8
			in := v.In
			more := ""
			if len(in) > most {
				more = fmt.Sprintf(" and %d more", len(in)-most)
				in = in[:most]
			}
			fmt.Fprintf(&b, "  %s (%s) in %s%s\n", printable.Line(v.Parsed.String()), printable.Line(v.Origin), printable.Line(strings.Join(in, ", ")), more)
		}
	}
	_, err := io.WriteString(out, lines(b.String()))
	return err
}

// lines makes a whole text fit for a terminal: reports come from other machines, too.
func lines(text string) string {
	out := strings.Split(text, "\n")
	for i := range out {
		out[i] = printable.Line(out[i])
	}
	return strings.Join(out, "\n")
}
