package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmatune/rdmatune/internal/printable"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
	"github.com/rdmatune/rdmatune/reconcile"
	"github.com/rdmatune/rdmatune/reconcile/serve"
)

// exitUnhealthy is status's exit code for a daemon that is not healthy.
const exitUnhealthy = 3

func newStatus(o *options) *cobra.Command {
	var asJSON bool
	var socket string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Ask the daemon how the node is",
		Long: `Ask the daemon that rdmatune reconcile is on this node: whether the node is as its spec
wants it and what keeps it from that, what was changed by others and by whom, what is
contested, what a guard has rolled back, which guards have no verdict, which events it
hears, and what is in force for each workload: HINT is what its processes find at their
start, with what the spec wants beside it where that is another.

Exit codes: 0 healthy; 3 not healthy; 1 no daemon runs, or it could not be asked.`,
		Example: `  rdmatune status
  rdmatune status --json | jq '.contested'
  rdmatune status --node sim:dgx`,
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := socket
			if path == "" {
				n, err := node.Open(o.node, o.stateDir)
				if err != nil {
					return err
				}
				path = filepath.Join(n.RunDir(), socketName)
				if err := n.Close(); err != nil {
					return err
				}
			}
			s, err := serve.Ask(cmd.Context(), path)
			if errors.Is(err, serve.ErrNoDaemon) {
				return fmt.Errorf("%w; rdmatune reconcile is one", err)
			}
			if err != nil {
				return err
			}
			if asJSON {
				err = json.NewEncoder(os.Stdout).Encode(s)
			} else {
				err = writeStatus(os.Stdout, s, time.Now())
			}
			if err == nil && !s.Healthy {
				return exitCode(exitUnhealthy)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the daemon's answer, on one line")
	cmd.Flags().StringVar(&socket, "socket", "", "the daemon's Unix `socket` (default reconcile.sock in the run directory)")
	return cmd
}

// maxShown bounds a text of a process or a file on a line.
const maxShown = 300

// A statusPage writes a status to a person. Its texts were another process's: none is
// trusted to be printable.
type statusPage struct {
	b   strings.Builder
	now time.Time
}

func writeStatus(w io.Writer, s *reconcile.Status, now time.Time) error {
	p := &statusPage{now: now}
	p.head(s)
	p.held("Contested, left to whoever rewrites them", s.Contested)
	p.held("Rolled back", s.RolledBack)
	p.held("Left as they are", s.Left)
	p.held("Waiting", s.Waiting)
	p.guards(s.Guards)
	p.notes(s.Notes)
	p.drifts(s.Recent)
	p.workloads(s.Workloads)
	p.sources(s)
	_, err := io.WriteString(w, p.b.String())
	return err
}

// line adds a line; the texts among args are made printable.
func (p *statusPage) line(format string, args ...any) {
	for i, a := range args {
		if text, ok := a.(string); ok {
			args[i] = printable.Clip(text, maxShown)
		}
	}
	fmt.Fprintf(&p.b, format+"\n", args...)
}

func (p *statusPage) head(s *reconcile.Status) {
	state := "healthy"
	if !s.Healthy {
		state = "NOT healthy"
	}
	what := ""
	if s.DryRun {
		what = ", dry run: it changes nothing"
	}
	p.line("%s: rdmatune %s, pid %d, up %s%s", state, s.Version, s.PID, p.ago(s.Started), what)
	for _, problem := range s.Problems {
		p.line("  - %s", problem)
	}
	p.line("")
	p.spec(s.Spec)
	if s.Irqbalance != "" {
		p.line("irqbalance  %s", s.Irqbalance)
	}
	for i, other := range s.Others {
		p.line("%-11s %s", map[bool]string{true: "others"}[i == 0], other)
	}
	p.line("so far      %s and %s; %s by others, %d healed", count(s.Passes, "pass"), count(s.Sweeps, "sweep"), count(s.Drifts, "change"), s.Heals)
	if l := s.LastPass; l != nil {
		why := string(l.Trigger)
		if l.Err != "" {
			why += ", failed: " + l.Err
		}
		p.line("last pass   %s ago, took %s, %s", p.ago(l.Began), brief(l.Took), why)
		for _, f := range l.Failures {
			p.line("            failed: %s", f)
		}
	}
}

func (p *statusPage) spec(s reconcile.SpecStatus) {
	if s.Digest == "" {
		p.line("spec        none was valid since the start")
		return
	}
	commit := ""
	if s.Commit != "" {
		commit = ", commit " + s.Commit
	}
	loaded := "loaded " + p.ago(s.Loaded) + " ago"
	switch {
	case s.Copy && s.Loaded.IsZero():
		loaded = "a copy of unknown age"
	case s.Copy:
		loaded = "a copy of what was loaded " + p.ago(s.Loaded) + " ago"
	}
	p.line("spec        %s, digest %s%s, %s", s.Root, s.Digest[:min(len(s.Digest), 12)], commit, loaded)
	if s.Invalid != "" {
		p.line("            the files are invalid now, and this is the last good spec")
	}
}

func count(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "s") {
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (p *statusPage) held(title string, list []reconcile.Held) {
	if len(list) == 0 {
		return
	}
	p.line("\n%s:", title)
	for i := 0; i < len(list); {
		h := list[i]
		n := 1
		for i+n < len(list) && list[i+n].Reason == h.Reason && h.Rewrites+list[i+n].Rewrites == 0 {
			n++
		}
		i += n
		more := ""
		if n > 1 {
			more = fmt.Sprintf(" (and %d more)", n-1)
		}
		history := ""
		if h.Rewrites > 0 && !strings.HasPrefix(h.Reason, "rewritten ") {
			history = fmt.Sprintf(" (rewritten %d times, last by %s)", h.Rewrites, cmp.Or(h.Writer, "somebody"))
		}
		until := ""
		if !h.Until.IsZero() {
			until = ", until " + h.Until.UTC().Format(time.DateTime) + " UTC"
		}
		p.line("  %s %s%s: %s%s%s", h.Address, h.Setting, more, h.Reason, history, until)
	}
}

func (p *statusPage) guards(list []reconcile.Debt) {
	if len(list) == 0 {
		return
	}
	p.line("\nGuards without a verdict:")
	for _, d := range list {
		reason := d.Reason
		if d.Breached {
			reason = "breached, and what an earlier run changed stays: " + reason
		}
		next := ""
		if !d.Next.IsZero() {
			next = "; measured again at " + d.Next.UTC().Format(time.DateTime) + " UTC, or by SIGHUP"
		}
		p.line("  %s: %s%s", d.Guard, reason, next)
	}
}

func (p *statusPage) notes(list []string) {
	if len(list) == 0 {
		return
	}
	p.line("\nNotes:")
	for _, n := range list {
		p.line("  %s", n)
	}
}

func (p *statusPage) drifts(list []reconcile.Drift) {
	if len(list) == 0 {
		return
	}
	p.line("\nLast changes by others:")
	for _, d := range list {
		end := d.Ruling
		if d.Healed > 0 {
			end = "healed in " + brief(d.Healed)
		}
		writer := cmp.Or(d.Writer, "somebody")
		if d.Writer != "" && !d.Known && !strings.HasPrefix(d.Writer, "somebody") {
			writer += " (likely)"
		}
		p.line("  %6s ago  %s %s: %s -> %s by %s: %s", p.ago(d.When), d.Address, d.Setting, d.Wrote, d.Found, writer, end)
	}
}

func (p *statusPage) workloads(list []reconcile.Workload) {
	if len(list) == 0 {
		return
	}
	p.line("")
	w := tabwriter.NewWriter(&p.b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WORKLOAD\tHINT\tGENERATION\tSETTINGS\tPROCESSES\tCONNECTIONS")
	for _, l := range list {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\n", printable.Clip(l.Address, maxShown), hintInForce(l), l.Generation, l.Settings, l.Processes, l.Connections)
	}
	_ = w.Flush() // into memory
}

// hintInForce is what processes of a workload find, and what they are to find where that is
// something else.
func hintInForce(w reconcile.Workload) string {
	switch {
	case w.Hint == nil && w.Wanted == nil:
		return "unmanaged"
	case w.Hint == nil:
		return "none (wanted: " + param.FormatBytes(*w.Wanted) + ")"
	case w.Wanted == nil:
		return param.FormatBytes(*w.Hint) + " (wanted: none)"
	case *w.Hint != *w.Wanted:
		return param.FormatBytes(*w.Hint) + " (wanted: " + param.FormatBytes(*w.Wanted) + ")"
	}
	return param.FormatBytes(*w.Hint)
}

func (p *statusPage) sources(s *reconcile.Status) {
	if len(s.Sources) == 0 {
		return
	}
	p.line("")
	w := tabwriter.NewWriter(&p.b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "EVENTS OF\tHEARD\tSO FAR\tLOST")
	for _, src := range s.Sources {
		on := "yes"
		switch reason := printable.Clip(src.Reason, maxShown); {
		case !src.On:
			on = "no: " + reason
		case reason != "":
			on = "in part: " + reason
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\n", printable.Clip(string(src.Source), maxShown), on, src.Events, src.Lost)
	}
	_ = w.Flush() // into memory
}

// ago is how long ago t was.
func (p *statusPage) ago(t time.Time) string {
	if t.IsZero() {
		return "?"
	}
	return brief(p.now.Sub(t))
}

// brief is d with two units at most: "3d4h", "12m5s", "40ms".
func brief(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "0s" // the clock was set back
	case d >= day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d >= 10*time.Second:
		return d.Truncate(time.Second).String()
	case d >= time.Second:
		return d.Truncate(100 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Truncate(time.Millisecond).String()
	}
	return d.Truncate(time.Microsecond).String()
}
