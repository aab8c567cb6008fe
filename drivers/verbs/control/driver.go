package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdmatune/rdmatune/drivers"
	"github.com/rdmatune/rdmatune/param"
)

const publishedPrefix = "published/"

// Driver is the driver of param.Hint over the run directory's sockets and files.
// Its targets are "published/WORKLOAD", what future processes of a workload will
// find, and one per live process that uses the transport, by pid. A process has
// the settings of the order in force and, for each connection, a HintSize and a
// HintLanes with the connection's number as index: what its lanes follow and are.
type Driver struct {
	runDir   string
	matches  func(pid int, m param.Match) (bool, error)
	patience func(Order) time.Duration // with one transport; tests have less
}

var (
	_ drivers.Driver   = (*Driver)(nil)
	_ drivers.Preparer = (*Driver)(nil)
)

// NewDriver returns the driver for runDir; matches says whether a process that
// names no workload meets a match block.
func NewDriver(runDir string, matches func(pid int, m param.Match) (bool, error)) *Driver {
	return &Driver{runDir, matches, patience}
}

// Kind is param.Hint.
func (d *Driver) Kind() param.Kind { return param.Hint }

// Discover returns the published target of the workload and one per process of it.
// With processes that do not answer, which may be of the workload as well, it
// returns the others and a drivers.ErrIncomplete error.
func (d *Driver) Discover(ctx context.Context, s param.Scope) ([]param.Target, error) {
	ps, err := List(ctx, d.runDir)
	if err != nil {
		return nil, err
	}
	var out []param.Target
	var silent []string
	quiet := map[int]bool{} // one silent transport of a process leaves it as a whole unknown
	for i := range ps {
		p := &ps[i]
		if p.Err != "" {
			silent = append(silent, p.silence())
			quiet[p.PID] = quiet[p.PID] || !p.left
			continue
		}
		ok, err := d.belongs(p, s)
		if err != nil {
			return nil, err
		}
		if t := p.target(); ok && (len(out) == 0 || out[len(out)-1].Key() != t.Key()) {
			out = append(out, t)
		}
	}
	out = slices.DeleteFunc(out, func(t param.Target) bool {
		pid, err := strconv.Atoi(t.Name)
		return err == nil && quiet[pid]
	})
	out = append(out, param.Target{Kind: param.Hint, Name: publishedPrefix + s.Workload})
	slices.SortFunc(out, func(a, b param.Target) int { return strings.Compare(a.Name, b.Name) })
	if len(silent) > 0 {
		return out, fmt.Errorf("%w: a process with a transport does not answer, and gets no order: %s", drivers.ErrIncomplete, drivers.Some(silent))
	}
	return out, nil
}

// silence says of a process that it does not answer, and why.
func (p *Process) silence() string {
	if p.PID == 0 {
		return p.Err
	}
	return fmt.Sprintf("%d (%s): %s", p.PID, p.Comm, p.Err)
}

func (p *Process) target() param.Target {
	return param.Target{Kind: param.Hint, Name: strconv.Itoa(p.PID), Incarnation: strconv.FormatUint(p.Start, 10), Label: p.Comm}
}

// belongs reports whether p is of the workload: it names it, or it names none and
// meets the match block.
func (d *Driver) belongs(p *Process, s param.Scope) (bool, error) {
	switch {
	case p.Workload != "":
		return p.Workload == s.Workload, nil
	case s.Match.IsEmpty() || d.matches == nil:
		return false, nil
	}
	ok, err := d.matches(p.PID, s.Match)
	if err != nil {
		return false, fmt.Errorf("process %d: match: %w", p.PID, err)
	}
	return ok, nil
}

// Read returns the settings in force. Within one look a process is asked one time, by
// Discover or the first Read. One that has fallen silent since it was discovered is an
// ErrIncomplete error.
func (d *Driver) Read(ctx context.Context, t param.Target) ([]param.Setting, error) {
	if w, ok := strings.CutPrefix(t.Name, publishedPrefix); ok {
		s, _, err := ReadPublished(d.runDir, w)
		if err != nil {
			// Something else than a hint is there: processes to come ignore it, apply
			// replaces it, and destroy leaves it to whoever put it there.
			out := (*Settings)(nil).list()
			out[0].Value, out[0].Note = param.Text("(unreadable)"), err.Error()
			return out, nil
		}
		return s.list(), nil
	}
	ps, err := d.processes(ctx, t)
	if err != nil {
		return nil, err
	}
	for i := range ps {
		if ps[i].Err != "" {
			return nil, fmt.Errorf("%w: a process has fallen silent, and gets no order: %s", drivers.ErrIncomplete, ps[i].silence())
		}
	}
	return settings(ps), nil
}

// processes returns the transports of the process that t names.
func (d *Driver) processes(ctx context.Context, t param.Target) ([]Process, error) {
	pid, err := strconv.ParseInt(t.Name, 10, 32)
	if err != nil || pid < 1 {
		return nil, fmt.Errorf("hint target %q: neither a process nor %s", t.Name, publishedPrefix)
	}
	ask := func() ([]Process, error) { return list(ctx, d.runDir, int(pid)) }
	if drivers.Looking(ctx) { // all have been asked, or will be
		ask = func() ([]Process, error) { return List(ctx, d.runDir) }
	}
	ps, err := ask()
	if err != nil {
		return nil, err
	}
	ps = slices.DeleteFunc(ps, func(p Process) bool {
		return p.PID != int(pid) || p.left || strconv.FormatUint(p.Start, 10) != t.Incarnation
	})
	if len(ps) == 0 {
		return nil, fmt.Errorf("process %s: %w", t.Name, drivers.ErrGone)
	}
	return ps, nil
}

// settings returns what a process has, by what its transports say. All of them do.
func settings(ps []Process) []param.Setting {
	out := ps[0].Settings.list()
	if h := ps[0].Hint; ps[0].Order.settings() != nil && h.Level != LevelOrdered {
		out[0].Note = "stands below: " + h.Origin
	}
	for _, p := range ps {
		for _, c := range p.Conns {
			if c.Fixed {
				continue // it follows nobody
			}
			s := param.Setting{ID: param.HintSize, Index: strconv.FormatUint(c.ID, 10), Value: intValue(c.Hint)}
			s.Note = c.Profile + ", from " + c.Origin
			if c.Dual {
				s.Note = c.Profile + " and bandwidth, from " + c.Origin
			}
			s.Origin = p.Hint.Level.String()
			s.Deferred = cooling(c, p.Settings)
			lanes := s
			lanes.ID, lanes.Value = param.HintLanes, param.Text(LanesSingle)
			if c.Dual {
				lanes.Value = param.Text(LanesDual)
			}
			out = append(out, s, lanes)
		}
	}
	return out
}

// MakeRunDir makes the directory of control sockets in runDir, where root makes it
// open to all users' processes.
func MakeRunDir(runDir string) error {
	d, err := makeDir(runDir)
	if err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	return d.f.Close()
}

// cooling says for how long c may not switch, "" when it may. The peer has a cooldown
// of its own, which only an attempt tells.
func cooling(c Conn, s *Settings) string {
	if s == nil || s.CooldownMS == nil {
		return ""
	}
	for _, w := range slices.Backward(c.Switches) {
		if w.Outcome == Switched {
			left := time.Until(w.When.Add(time.Duration(*s.CooldownMS) * time.Millisecond)).Round(time.Second)
			if left <= 0 {
				return ""
			}
			return fmt.Sprintf("cooldown, %v left", left)
		}
	}
	return ""
}

// settings is nil where there is no order or it took an earlier one back.
func (o *Order) settings() *Settings {
	if o == nil {
		return nil
	}
	return o.Settings
}

// Prepare tells every process what its side shall have, before any switches. A
// process that went away needs to know nothing.
func (d *Driver) Prepare(ctx context.Context, targets []param.Target, o param.Order) error {
	var errs []error
	for _, t := range targets {
		if strings.HasPrefix(t.Name, publishedPrefix) {
			continue
		}
		ps, err := d.processes(ctx, t)
		if err == nil {
			_, err = d.order(ctx, ps, o, nil, false)
		}
		if err != nil && !errors.Is(err, drivers.ErrGone) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Apply publishes, or orders a process and waits for its switches. Connections that
// cannot switch yet are ErrDeferred, those that will not ErrRefused; the text names
// them.
func (d *Driver) Apply(ctx context.Context, t param.Target, cs []param.Change, o param.Order) ([]param.Setting, error) {
	if w, ok := strings.CutPrefix(t.Name, publishedPrefix); ok {
		return d.publish(ctx, t, w, cs, o)
	}
	ps, err := d.processes(ctx, t)
	if err != nil {
		return nil, err
	}
	outcomes, oerr := d.order(ctx, ps, o, cs, true)
	now, err := d.Read(ctx, t)
	if err != nil {
		return nil, errors.Join(oerr, err)
	}
	if oerr != nil {
		return now, oerr
	}
	return now, errors.Join(judge(outcomes), verify(now, cs, outcomes))
}

// order gives every transport of a process its order, and waits for all of them twice as
// long at most as for one: a process may have any number, each of which takes its time.
func (d *Driver) order(ctx context.Context, ps []Process, o param.Order, cs []param.Change, open bool) ([]Outcome, error) {
	var out []Outcome
	began := time.Now()
	for i := range ps {
		p := &ps[i]
		if p.Err != "" {
			return out, fmt.Errorf("process %d: %s", p.PID, p.Err)
		}
		ord := Order{ID: o.ID, Generation: o.Generation, Workload: o.Workload, Force: o.Force, Open: open,
			DrainTimeoutMS: o.Drain.Milliseconds(),
			Settings:       p.Order.settings().with(o.Want, cs)}
		if o.Release {
			ord.Settings = nil
		}
		most := d.patience(ord)
		octx, cancel := context.WithTimeout(ctx, min(most, 2*most-time.Since(began)))
		res, err := send(octx, d.runDir, p, ord)
		cancel()
		if err != nil {
			return out, err
		}
		out = append(out, res.Outcomes...)
	}
	return out, nil
}

// patience bounds the wait for a process whose connections switch: each phase of a
// switch has one drain timeout.
func patience(o Order) time.Duration {
	drain := 2 * time.Second
	if s := o.Settings; s != nil && s.DrainTimeoutMS != nil {
		drain = time.Duration(*s.DrainTimeoutMS) * time.Millisecond
	}
	drain = max(drain, time.Duration(o.DrainTimeoutMS)*time.Millisecond)
	return 6*drain + 10*time.Second
}

// judge turns outcomes into an error.
func judge(outcomes []Outcome) error {
	var refused, deferred []string
	for _, o := range outcomes {
		switch o.Outcome {
		case Refused, Aborted:
			refused = append(refused, fmt.Sprintf("connection %d: %s: %s", o.Conn, o.Outcome, o.Reason))
		case Deferred:
			deferred = append(deferred, fmt.Sprintf("connection %d: %s until %s", o.Conn, o.Reason, o.When.Add(o.RetryAfter).Format(time.RFC3339)))
		}
	}
	text := strings.Join(append(refused, deferred...), "; ")
	switch {
	case len(refused) > 0:
		return fmt.Errorf("%w: %s", drivers.ErrRefused, text)
	case len(deferred) > 0:
		return fmt.Errorf("%w: %s", drivers.ErrDeferred, text)
	}
	return nil
}

// verify compares what is in force with what was asked, where a switch was done.
func verify(now []param.Setting, cs []param.Change, outcomes []Outcome) error {
	done := map[string]bool{"": true}
	for _, o := range outcomes {
		if o.Outcome == Switched || o.Outcome == InPlace {
			done[strconv.FormatUint(o.Conn, 10)] = true
		}
	}
	var errs []error
	for _, c := range cs {
		got, ok := drivers.Lookup(now, c.ID, c.Index)
		if !ok || !done[c.Index] || got.Value == c.New {
			continue
		}
		errs = append(errs, fmt.Errorf("%s %s: asked for %s, reads back %s", c.ID, c.Index, c.New, got.Value))
	}
	return errors.Join(errs...)
}

// publish writes or removes the workload's file.
func (d *Driver) publish(ctx context.Context, t param.Target, workload string, cs []param.Change, o param.Order) ([]param.Setting, error) {
	before, path, err := ReadPublished(d.runDir, workload)
	if err != nil {
		before, err = nil, nil // what cannot be read is replaced
	}
	after := before.with(o.Want, cs)
	switch {
	case after == nil:
		err = Unpublish(d.runDir, workload)
	case before == nil || !slices.Equal(before.list(), after.list()):
		err = Publish(d.runDir, workload, *after)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	now, rerr := d.Read(ctx, t)
	if err = errors.Join(err, rerr); err != nil {
		return now, err
	}
	return now, verify(now, cs, nil)
}
