package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/spec"
)

// When a process follows its workload's hint.
const (
	Follows       = "as wanted"
	SwitchNow     = "switch now"     // on rdmatune's transport
	Differs       = "not as wanted"  // on rdmatune's transport, and no connection of it switches now
	AtNextStart   = "at next start"  // its library reads its variables once
	NotObservable = "not observable" // what it does cannot be seen
)

// A Live is what was seen of the processes of a workload that has a hint. It is shown
// beside the plan and is no part of it: processes come and go.
type Live struct {
	Workload  string    `json:"workload"`
	Processes []Process `json:"processes"`
	// Disagree says what the processes read differently from each other.
	Disagree []string `json:"disagree"`
	// Others are who else has queue pairs on the workload's device.
	Others []string `json:"others"`
	// Criteria are for and against a hint, and the questions about it.
	Criteria []Criterion `json:"criteria"`
}

// A Process is one process of a workload.
type Process struct {
	PID  int    `json:"pid"`
	Comm string `json:"comm"`
	When string `json:"when"`
	// Detail is the exact mismatch, or why it cannot be seen.
	Detail string `json:"detail"`
	// Transport says that it uses rdmatune's transport and answers: its hint is the
	// plan's to change.
	Transport bool `json:"transport"`
}

// A Criterion is one question about a hint and its answer: "yes", "no", "unanswered".
type Criterion struct {
	Group    string `json:"group"` // "use", "leave" or "question"
	Question string `json:"question"`
	Answer   string `json:"answer"`
	// Statement is question and answer in one plain sentence, "" when it is unanswered, or
	// another criterion's sentence says it.
	Statement string `json:"statement"`
}

// live takes over what was seen of w, and warns of what speaks against its hint.
func (m *maker) live(w spec.Workload) {
	i := slices.IndexFunc(m.in.Live, func(l Live) bool { return l.Workload == w.Address })
	if i < 0 {
		return
	}
	l := m.in.Live[i]
	l.Processes = slices.Clone(l.Processes)
	for j := range l.Processes {
		m.agree(w, &l.Processes[j])
	}
	m.plan.Live = append(m.plan.Live, l)
	at, size := w.Range, int64(0)
	for _, want := range w.Wants {
		if want.Kind != param.Hint || len(want.Targets) == 0 {
			continue
		}
		at = want.Range
		for _, s := range want.Targets[0].Settings {
			if n, ok := s.Value.AsInt(); ok && s.ID == param.HintSize {
				at, size = s.Range, n
			}
		}
	}
	warn := func(summary, format string, args ...any) {
		m.plan.Diags = m.plan.Diags.Append(&hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: at.Ptr()})
	}
	if len(l.Others) > 0 && size > 0 {
		warn("Hint on a shared NIC", "Others have queue pairs on %s: %s. Its queues, its link and its caches are not the workload's alone, and a hint cannot keep their traffic out of the way. A hint of 0 may serve better.",
			w.Device, few(l.Others))
	}
	if len(l.Disagree) > 0 {
		warn("Processes disagree", "Processes of %q do not read alike: %s. Ranks that choose different protocols for one size wait for each other, or fail.", w.Address, few(l.Disagree))
	}
}

// agree makes what is said of a process on the transport agree with what the plan does
// to it: the plan compares more than its connections, and may leave alone what differs.
// To be told of a hint is no switch where a connection that differs stays as it is.
func (m *maker) agree(w spec.Workload, p *Process) {
	if !p.Transport {
		return
	}
	target := param.Target{Kind: param.Hint, Name: strconv.Itoa(p.PID)}
	var told, switched, left []string
	for _, c := range m.plan.Changes {
		if c.Workload != w.Address || c.Target.Kind != param.Hint || c.Target.Name != target.Name {
			continue
		}
		change := fmt.Sprintf("%s %s -> %s", attr(c.ID), param.Format(c.ID, c.Old), param.Format(c.ID, c.New))
		if c.Index == "" {
			told = append(told, "what it is told: "+change)
		} else {
			switched = append(switched, "connection "+c.Index+": "+change)
		}
	}
	for _, n := range append(slices.Clone(m.plan.Pending), m.plan.Notes...) {
		if n.Address == Address(w.Address, target) {
			left = append(left, n.Reason)
		}
	}
	switch {
	case len(switched) > 0:
		p.When = SwitchNow
		if len(left) > 0 {
			p.Detail = few(switched) + " (not now: " + few(left) + ")"
		} else if p.Detail == "" {
			p.Detail = few(append(told, switched...))
		}
	case p.When == Differs, len(left) > 0 && p.When == SwitchNow:
		p.When = Differs
		if why := append(left, told...); len(why) > 0 {
			p.Detail += " (" + few(why) + ")"
		}
	case len(told) > 0:
		p.When = SwitchNow
		if p.Detail == "" {
			p.Detail = few(told)
		}
	case p.When == SwitchNow:
		p.When = Differs
	}
}

// few joins the first of a list.
func few(all []string) string {
	const most = 4
	text := strings.Join(all[:min(len(all), most)], "; ")
	if len(all) > most {
		text += fmt.Sprintf("; and %d more", len(all)-most)
	}
	return text
}

// maxShown bounds the processes that are shown one by one.
const maxShown = 16

// writeLive writes what was seen beside the plan; what speaks for and against a hint
// only where the plan changes it.
func (p *Plan) writeLive(b *strings.Builder, st Style) {
	all := p.Live
	for _, l := range all {
		if len(l.Processes) > 0 {
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(b, "%s\n", st.paint("1", "Processes of "+l.Workload+" and its hint:"))
		}
		for _, proc := range l.Processes[:min(len(l.Processes), maxShown)] {
			fmt.Fprintf(b, "  %d (%s): %s", proc.PID, proc.Comm, proc.When)
			if proc.Detail != "" {
				fmt.Fprintf(b, ": %s", proc.Detail)
			}
			b.WriteByte('\n')
		}
		if more := len(l.Processes) - maxShown; more > 0 {
			fmt.Fprintf(b, "  and %d more (--json has all)\n", more)
		}
	}
	all = slices.DeleteFunc(slices.Clone(all), func(l Live) bool {
		return !slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Workload == l.Workload && c.Target.Kind == param.Hint })
	})
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && slices.Equal(all[j].Criteria, all[i].Criteria) {
			j++
		}
		writeCriteria(b, all[i], j-i-1, st)
		i = j
	}
}

// writeCriteria writes the criteria of a workload and of so many more that have the
// same: a line for each that is answered.
func writeCriteria(b *strings.Builder, l Live, more int, st Style) {
	if len(l.Criteria) == 0 {
		return
	}
	var speaks, against []string
	open := 0
	add := func(list *[]string, c Criterion) {
		if c.Statement != "" && !slices.Contains(*list, c.Statement) {
			*list = append(*list, c.Statement)
		}
	}
	for _, c := range l.Criteria {
		switch {
		case c.Answer == "unanswered":
			open++
		case c.Group == "use" && c.Answer == "yes", c.Group == "leave" && c.Answer == "no":
			add(&speaks, c)
		case c.Group == "use", c.Group == "leave":
			add(&against, c)
		}
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	who := l.Workload
	if more > 0 {
		who += fmt.Sprintf(" (and %d more)", more)
	}
	fmt.Fprintf(b, "%s\n", st.paint("1", "Does a hint serve "+who+"?"))
	for _, s := range speaks {
		fmt.Fprintf(b, "  for:     %s\n", s)
	}
	for _, s := range against {
		fmt.Fprintf(b, "  against: %s\n", s)
	}
	if open > 0 {
		fmt.Fprintf(b, "  open:    %d of %d questions; rdmatune doctor says what is missing to answer them\n", open, len(l.Criteria))
	}
}
