// Package doctor says what a node can and cannot do for low-latency RDMA, and what
// about it is not as it should be: each finding with its evidence, why it matters and
// what to do. For a workload it answers whether a hint serves it, from what was seen,
// and says "unanswered" where nothing was. What cannot be read is unknown, never fine.
package doctor

import (
	"context"
	"slices"

	"github.com/rdmatune/rdmatune/audit/live"
	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/control"
	"github.com/rdmatune/rdmatune/internal/gpu"
	"github.com/rdmatune/rdmatune/internal/sysfs"
	"github.com/rdmatune/rdmatune/node"
)

// FormatVersion is the version of the JSON of a Report: a higher minor number adds
// members, a higher major number changes the meaning of one.
const FormatVersion = "1.1"

// A Level says how a finding is to be taken.
type Level string

// Levels, gravest first.
const (
	Problem Level = "problem" // low latency cannot be had as long as it is so
	Warning Level = "warning"
	Unknown Level = "unknown" // could not be found out
	Fine    Level = "fine"
)

// Evidence is one thing that was read.
type Evidence struct {
	Path  string `json:"path"`
	Value string `json:"value"`
}

// A Finding is one check's outcome for one subject.
type Finding struct {
	Check    string     `json:"check"`
	Subject  string     `json:"subject"`
	Level    Level      `json:"level"`
	Message  string     `json:"message"`
	Evidence []Evidence `json:"evidence"`
	Why      string     `json:"why,omitempty"`
	Do       string     `json:"do,omitempty"`
}

// An Answer to a question about a workload.
type Answer string

// Answers.
const (
	Yes        Answer = "yes"
	No         Answer = "no"
	Unanswered Answer = "unanswered"
)

// A Verdict is one criterion or question about a workload.
type Verdict struct {
	// Group is "use" (for a hint above 0), "leave" (for leaving it alone), or
	// "question" (what the operator should know).
	Group    string   `json:"group"`
	Question string   `json:"question"`
	Answer   Answer   `json:"answer"`
	Evidence []string `json:"evidence"`
	// Statement is question and answer in one plain sentence, "" when it is unanswered, or
	// another verdict's sentence says it.
	Statement string `json:"statement"`
}

// A Report is all findings, and the verdicts where a workload was given.
type Report struct {
	FormatVersion string    `json:"format_version"`
	Host          string    `json:"host"`
	Simulated     bool      `json:"simulated,omitempty"`
	Findings      []Finding `json:"findings"`
	Workloads     []Judged  `json:"workloads"`
}

// A Judged is a workload with its verdicts.
type Judged struct {
	Workload string    `json:"workload"`
	Verdicts []Verdict `json:"verdicts"`
}

// Count counts the findings of a level.
func (r *Report) Count(l Level) int {
	n := 0
	for _, f := range r.Findings {
		if f.Level == l {
			n++
		}
	}
	return n
}

// Input is what is examined.
type Input struct {
	Node  *node.Node
	Facts *node.Facts
	View  *live.View
	// GPUs is what the GPU driver says, or GPUErr why it was not asked.
	GPUs   []gpu.Device
	GPUErr error
	// Verbs is nil where devices cannot be opened: on a node that is not this machine.
	Verbs verbs.Provider
	// NoVerbs says that this program is built without verbs, whatever the node has.
	NoVerbs bool
	// Workloads are those that verdicts are asked for.
	Workloads []Workload
	// Brief leaves out what no verdict needs.
	Brief bool
}

// A Workload is what the verdicts are about.
type Workload struct {
	Address string
	Device  string
	Hint    *int64   // bytes
	Tuned   []string // the base tuning that its spec has: "cpu_pinning"
	// Due is what of it is not in force: "irq_affinity is not as the spec wants it".
	Due        []string
	PIDs       []int
	Transports []control.Process
	// Following are those of PIDs whose transports are all as the spec wants them.
	Following []int
	// Libraries are those of PIDs that have another communication library mapped, and
	// Unseen those of which that cannot be told.
	Libraries, Unseen []int
}

// Owns reports whether p is of the workload: one of its processes, or one that names
// it, in its environment or to its transport.
func (w *Workload) Owns(p *live.Process) bool {
	return p.PID != 0 && (slices.Contains(w.PIDs, p.PID) || p.Workload != "" && p.Workload == w.Address)
}

// Examine examines a node. It changes nothing; the queue pairs that it tries out on
// local devices are gone when it returns. The error is ctx's.
func Examine(ctx context.Context, in Input) (*Report, error) {
	e := &examiner{Input: in, fs: in.Node.FS(), report: &Report{FormatVersion: FormatVersion, Simulated: in.Facts.Simulated, Findings: []Finding{}, Workloads: []Judged{}}}
	if in.Facts.Hostname != nil {
		e.report.Host = *in.Facts.Hostname
	}
	steps := []func(){e.sharing, e.tuning, e.daemons}
	if !in.Brief {
		steps = append([]func(){e.devices, e.links, e.library, e.deviceFeatures, e.gpuDirect, e.environment}, steps...)
	}
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		step()
	}
	slices.SortStableFunc(e.report.Findings, func(a, b Finding) int { return rank(a.Level) - rank(b.Level) })
	for i := range in.Workloads {
		j := &judge{examiner: e, workload: &in.Workloads[i]}
		e.report.Workloads = append(e.report.Workloads, Judged{in.Workloads[i].Address, j.verdicts()})
	}
	return e.report, nil
}

func rank(l Level) int { return slices.Index([]Level{Problem, Warning, Unknown, Fine}, l) }

type examiner struct {
	Input
	fs     sysfs.FS
	report *Report
}

// add notes a finding.
func (e *examiner) add(f Finding) {
	if f.Evidence == nil {
		f.Evidence = []Evidence{}
	}
	e.report.Findings = append(e.report.Findings, f)
}

// read returns a file's text as evidence; false when it cannot be read, with the
// reason as the value.
func (e *examiner) read(path string) (Evidence, bool) {
	text, err := e.fs.ReadString(path)
	if err != nil {
		return Evidence{path, reason(err)}, false
	}
	return Evidence{path, clip(text)}, true
}
