package plan

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/rdmatune/rdmatune/internal/cpulist"
	"github.com/rdmatune/rdmatune/param"
)

// A Style says how text may look.
type Style struct {
	Color bool
}

var symbols = map[param.Action]string{param.Update: "~", param.Replace: "+/-", param.Restore: "-"}

var verbs = map[param.Action]string{
	param.Update: "will be updated in-place", param.Restore: "will be restored",
}

// SGR colours by action, as Terraform has them.
var colors = map[param.Action]string{param.Update: "33", param.Replace: "31", param.Restore: "31"}

func (s Style) paint(code, text string) string {
	if !s.Color || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// WriteText writes the plan for a person.
func (p *Plan) WriteText(w io.Writer, st Style) error {
	var b strings.Builder
	groups := p.groups()
	if len(groups) > 0 {
		b.WriteString("rdmatune will perform the following actions, in this order:\n")
	}
	for i := 0; i < len(groups); {
		j := i
		for j < len(groups) && groups[j].workload == groups[i].workload && groups[j].target.Kind == groups[i].target.Kind && groups[j].action == groups[i].action {
			j++
		}
		writeSection(&b, groups[i:j], st)
		i = j
	}
	writeNotes(&b, "Pending (decided, but not possible now):", p.Pending, st)
	writeNotes(&b, "Notes:", p.Notes, st)
	writeNotes(&b, "Not observable:", p.Unreadable, st)
	p.writeLive(&b, st)
	writeNotes(&b, "Measured afterwards:", p.guardNotes(), st)
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	switch s := p.Summary(); {
	case p.Errored():
		b.WriteString(st.paint("1", "The plan has errors and cannot be applied.") + "\n")
	case p.Empty():
		b.WriteString(st.paint("1;32", "No changes.") + p.noChanges() + "\n")
		if n := len(p.GuardsDue()); n > 0 {
			fmt.Fprintf(&b, "But %s without a verdict since the last change, or with a bad one that undid nothing: apply measures again.\n", param.Count(n, "guard"))
		}
	default:
		fmt.Fprintf(&b, "%s %d to change, %d to replace, %d to restore.\n", st.paint("1", "Plan:"), s.Change, s.Replace, s.Restore)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// notHere begins the note of something that the node does not have.
const notHere = "not available here: "

// noChanges says what it means that there is nothing to do.
func (p *Plan) noChanges() string {
	switch {
	case p.Destroy && p.LeftAlone > 0 && len(p.Unreadable) == 0:
		return " What is left was changed by somebody else since; --force restores it."
	case p.Destroy && len(p.Unreadable) == 0 && len(p.Pending) > 0:
		return " What is left to restore is pending."
	case p.Destroy && len(p.Unreadable) == 0:
		return " rdmatune has nothing to restore on this node."
	case len(p.Unreadable) > 0:
		return " What is managed but not observable is left as it is."
	case len(p.Pending) > 0:
		return " What the spec wants beyond this is pending."
	case slices.ContainsFunc(p.Notes, func(n Note) bool { return strings.HasPrefix(n.Reason, notHere) }):
		return " What the spec wants beyond this is not available here."
	}
	return " The node and its connections are as the spec wants them."
}

// writeSection writes the targets of one workload, kind and action.
func writeSection(b *strings.Builder, groups []group, st Style) {
	first := groups[0]
	head := Address(first.workload, first.target)
	verb := verbs[first.action]
	if first.action == param.Replace {
		verb = "will be updated, and connections switched"
	}
	if len(groups) > 1 {
		head = fmt.Sprintf("workload.%s.%s: %d targets", first.workload, first.target.Kind, len(groups))
	} else if first.target.Label != "" {
		head += " (" + first.target.Label + ")"
	}
	head = "# " + head + " " + verb
	origin := first.changes[0].Origin
	if origin != "" {
		head += " (" + origin + ")"
	}
	fmt.Fprintf(b, "\n  %s\n", st.paint("1", head))
	var table strings.Builder
	tw := tabwriter.NewWriter(&table, 0, 0, 1, ' ', 0)
	var codes []string
	for _, r := range rows(groups) {
		g := r.groups[0]
		for k, l := range g.lines() {
			action := g.action
			if action == param.Replace && l.disrupt == param.None {
				action = param.Update
			}
			codes = append(codes, colors[action])
			shown := ""
			if k == 0 {
				shown = fmt.Sprintf("[%q]", foldedName(r.groups))
			}
			from, to := param.Format(l.id, l.old), param.Format(l.id, l.new)
			if r.from != "" {
				from, to = r.from, r.to
			}
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s -> %s\t%s\n", symbols[action], shown, l.name, from, to,
				remarks(g, l, k == 0 && len(groups) > 1 && len(r.groups) == 1, origin))
		}
	}
	tw.Flush()
	// Colours go in after the columns are laid out: their bytes have no width.
	for text := range strings.Lines(table.String()) {
		symbol, rest, _ := strings.Cut(strings.TrimRight(text, " \n"), " ")
		fmt.Fprintf(b, "  %s %s\n", st.paint(codes[0], symbol), rest)
		codes = codes[1:]
	}
}

// A row is what changes of one target, or of several together.
type row struct {
	groups   []group
	from, to string // where the targets differ in that
}

// rows are those of a section.
func rows(groups []group) []row {
	var out []row
	for _, f := range fold(groups) {
		out = append(out, row{groups: f})
	}
	if len(out) > fewRows {
		out = merge(out)
	}
	return out
}

// fewRows is how many rows of a section nobody minds reading.
const fewRows = 8

// merge puts the interrupts of one function into one row that are spread over CPUs, or were.
func merge(all []row) []row {
	var out []row
	type spread struct {
		row      int
		from, to cpulist.Set // of single CPUs
	}
	seen := map[string]*spread{}
	for _, r := range all {
		g := r.groups[0]
		lines := g.lines()
		l := lines[0]
		from, to := oneCPU(l.old), oneCPU(l.new)
		if g.target.Kind != param.IRQ || len(lines) != 1 || from.IsEmpty() && to.IsEmpty() {
			out = append(out, r)
			continue
		}
		r.from, r.to = param.Format(l.id, l.old), param.Format(l.id, l.new)
		function, _, _ := strings.Cut(g.target.Name, "/")
		key := fmt.Sprintf("%s\x00%v\x00%s\x00", function, l.drift, l.origin)
		if from.IsEmpty() {
			key += r.from
		}
		key += "\x00"
		if to.IsEmpty() {
			key += r.to
		}
		same := seen[key]
		if same == nil {
			seen[key] = &spread{len(out), from, to}
			out = append(out, r)
			continue
		}
		same.from, same.to = same.from.Union(from), same.to.Union(to)
		m := &out[same.row]
		m.groups = slices.Concat(m.groups, r.groups)
		if !from.IsEmpty() {
			m.from = eachOf(same.from)
		}
		if !to.IsEmpty() {
			m.to = eachOf(same.to)
		}
	}
	return out
}

// eachOf says that of many interrupts each has one of cpus.
func eachOf(cpus cpulist.Set) string {
	if cpus.Size() == 1 {
		return cpulist.Format(cpus)
	}
	return "one each of " + cpulist.Format(cpus)
}

// oneCPU is the CPU of a list with one, else none.
func oneCPU(v param.Value) cpulist.Set {
	text, _ := v.AsText()
	if set, err := cpulist.ParseKernel(text); err == nil && set.Size() == 1 {
		return set
	}
	return cpulist.New()
}

// fold puts targets of which everything changes alike into one row.
func fold(groups []group) [][]group {
	var out [][]group
	at := map[string]int{}
	for _, g := range groups {
		key := ""
		for _, l := range g.lines() {
			key += fmt.Sprintf("%s\x00%v\x00%v\x00%v\x00", l.name, l.old, l.new, l.drift)
		}
		// A process or a connection is somebody's: each has a row of its own.
		if k := g.target.Kind; k == param.Pinning || k == param.Hint {
			key += g.target.Name
		}
		if i, ok := at[key]; ok {
			out[i] = append(out[i], g)
			continue
		}
		at[key] = len(out)
		out = append(out, []group{g})
	}
	return out
}

// foldedName names the targets of a row: policy0-7,112.
func foldedName(gs []group) string {
	if isPublished(gs[0].target) {
		return "published"
	}
	name := gs[0].target.Name
	if len(gs) == 1 {
		return name
	}
	prefix := strings.TrimRight(name, "0123456789")
	numbers := cpulist.New()
	for _, g := range gs {
		n, err := strconv.Atoi(strings.TrimPrefix(g.target.Name, prefix))
		if err != nil {
			return fmt.Sprintf("%s and %d more", name, len(gs)-1)
		}
		numbers = numbers.Union(cpulist.New(n))
	}
	return prefix + cpulist.Format(numbers)
}

// remarks is the comment behind a changed attribute.
func remarks(g group, l line, withLabel bool, origin string) string {
	var parts []string
	if withLabel && g.target.Label != "" {
		parts = append(parts, g.target.Label)
	}
	if l.count > 1 {
		parts = append(parts, fmt.Sprintf("%d threads", l.count))
	}
	if l.drift {
		parts = append(parts, "drift")
	}
	if l.disrupt != param.None && l.disrupt != "" {
		parts = append(parts, string(l.disrupt))
	}
	if l.origin != origin {
		file, _, _ := strings.Cut(origin, ":")
		parts = append(parts, strings.TrimPrefix(l.origin, file+":"))
	}
	if len(parts) == 0 {
		return ""
	}
	return "# " + strings.Join(parts, ", ")
}

func writeNotes(b *strings.Builder, title string, notes []Note, st Style) {
	if len(notes) == 0 {
		return
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	b.WriteString(st.paint("1", title) + "\n")
	for i := 0; i < len(notes); {
		j := i
		for j < len(notes) && notes[j].Reason == notes[i].Reason {
			j++
		}
		more := ""
		if j-i > 1 {
			more = fmt.Sprintf(" (and %d more)", j-i-1)
		}
		fmt.Fprintf(b, "  %s%s: %s\n", notes[i].Address, more, notes[i].Reason)
		i = j
	}
}
