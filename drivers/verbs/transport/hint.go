package transport

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/param"
)

// The environment variables that Open reads.
const (
	// EnvHint holds a hint in the grammar of ParseHint. Empty is unset.
	EnvHint = "RDMA_LOW_LATENCY_HINT"
	// EnvWorkload names the workload of the process.
	EnvWorkload = "RDMATUNE_WORKLOAD"
)

// MaxHint is the largest hint, in bytes.
const MaxHint = param.MaxHint

// ParseHint reads a hint as a spec's sizes are written (param.ParseBytes): a number of
// bytes, or one with B, KiB, MiB or GiB; K, KB and so on count in 1024 too, and notice
// says so. Nothing above MaxHint is accepted.
func ParseHint(s string) (bytes int64, notice string, err error) {
	bytes, notice, err = param.ParseBytes(s)
	if err == nil && bytes > MaxHint {
		err = fmt.Errorf("size %.40q is above %s", s, param.FormatBytes(MaxHint))
	}
	if err != nil {
		return 0, "", err
	}
	return bytes, notice, nil
}

// A hintSource is everything that hints may come from.
type hintSource struct {
	workload  string
	program   *int64
	env       string
	envSet    bool
	runDir    string
	published *control.Settings
	pubPath   string
	pubErr    error
}

// readSources collects what is fixed while the process lives.
func readSources(o Options) hintSource {
	s := hintSource{workload: o.Workload, program: o.Hint}
	if s.workload == "" {
		s.workload = os.Getenv(EnvWorkload)
	}
	s.env, s.envSet = os.LookupEnv(EnvHint)
	s.runDir = o.RunDir
	s.readPublished()
	return s
}

// readPublished reads what is published for the workload now.
func (s *hintSource) readPublished() {
	if s.runDir != "" && s.workload != "" {
		s.published, s.pubPath, s.pubErr = control.ReadPublished(s.runDir, s.workload)
	}
}

// effective ranks the candidates: the order, the program, the environment, the
// published file. An order that does not override stands below program and
// environment.
func (s hintSource) effective(order *control.Order) control.EffectiveHint {
	var out control.EffectiveHint
	var all []control.Candidate
	rank := map[control.Level]int{}
	add := func(level control.Level, at int, origin string, size *int64, why string) {
		all = append(all, control.Candidate{Level: level, Origin: origin, Size: size, Why: why})
		rank[level] = at
	}
	if order != nil && order.Settings != nil && order.Settings.Size != nil {
		at := 10
		why := ""
		if o := order.Settings.Override; o != nil && !*o {
			at, why = 35, "override = false"
		}
		add(control.LevelOrdered, at, "order "+order.ID, order.Settings.Size, why)
	}
	if s.program != nil {
		add(control.LevelProgram, 20, "program", s.program, "")
	}
	switch {
	case s.envSet && s.env == "":
		out.Notices = append(out.Notices, EnvHint+" is empty: taken as unset")
	case s.envSet:
		n, notice, err := ParseHint(s.env)
		origin := fmt.Sprintf("%s=%.40s", EnvHint, s.env)
		if err != nil {
			add(control.LevelEnv, 30, origin, nil, err.Error())
		} else {
			add(control.LevelEnv, 30, origin, &n, "")
		}
		if notice != "" {
			out.Notices = append(out.Notices, EnvHint+": "+notice)
		}
	}
	if s.pubErr != nil {
		add(control.LevelPublished, 40, s.pubPath, nil, s.pubErr.Error())
	} else if s.published != nil && s.published.Size != nil {
		add(control.LevelPublished, 40, s.pubPath, s.published.Size, "")
	}
	slices.SortStableFunc(all, func(a, b control.Candidate) int { return cmp.Compare(rank[a.Level], rank[b.Level]) })
	out.Level, out.Origin = control.LevelNone, "none"
	for _, c := range all {
		switch {
		case c.Size == nil:
			out.Notices = append(out.Notices, c.Origin+" rejected: "+c.Why)
			out.Losers = append(out.Losers, c)
		case out.Level == control.LevelNone:
			out.Size, out.Level, out.Origin = c.Size, c.Level, c.Origin
		default:
			out.Losers = append(out.Losers, c)
		}
	}
	return out
}
