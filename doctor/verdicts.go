package doctor

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/rdmatune/rdmatune/param"
)

// A judge answers what is asked about one workload.
type judge struct {
	*examiner
	workload *Workload
}

// BaseTuning is the question that asks for base tuning.
const BaseTuning = "base tuning is done"

// A criterion is a question, and what its two answers mean in plain words.
type criterion struct{ question, yes, no string }

var (
	narrowBand = criterion{"message sizes lie in a narrow band", "one hint fits most messages", "message sizes vary too much for one hint to fit most of them"}
	longTail   = criterion{"latency matters and P99 is far above P50", "the slowest messages take far longer than the typical one (P99 against P50)", "there is little tail to save: P99 is not far above P50"}
	ownNIC     = criterion{"the NIC is the workload's own", "the NIC is the workload's own", "the NIC is shared with others"}
	baseTuning = criterion{BaseTuning, "base tuning is done", "base tuning is not done: pinning, frequency and interrupts come first"}

	wideBand       = criterion{question: "sizes differ by orders of magnitude", yes: "message sizes differ by orders of magnitude"}
	bandwidthFirst = criterion{"bandwidth comes first", "bandwidth comes first: large messages carry nearly all bytes", "bandwidth does not come first: small messages are common"}
	virtualised    = criterion{"the node is virtualised", "the node is a virtual machine: a setting may read back right and change nothing", "the node is hardware, not a virtual machine"}
	sharedNIC      = criterion{"the NIC is shared", ownNIC.no, ownNIC.yes}

	howBig       = criterion{"are the sizes of its messages known?", "message sizes were counted", ""}
	bandwidthToo = criterion{"is bandwidth needed too?", "bandwidth is needed too", "bandwidth is not what matters"}
	canApply     = criterion{"can this environment apply it?", "running processes can be switched now", "running processes follow at their next start"}
	isApplied    = criterion{canApply.question, "running processes are as the spec wants them", canApply.no}
)

// verdicts answers, for the workload, each criterion of giving it a hint and of leaving
// it alone, and the three questions that an operator should have answered.
func (e *judge) verdicts() []Verdict {
	var out []Verdict
	s := e.sizes()
	add := func(group string, c criterion, a Answer, evidence ...string) {
		if evidence == nil {
			evidence = []string{}
		}
		statement := map[Answer]string{Yes: c.yes, No: c.no}[a]
		out = append(out, Verdict{group, c.question, a, evidence, statement})
	}
	unmeasured := "no message of the workload was seen: rdmatune's transport counts sizes, for others nothing does"
	narrow, wide, bandwidth := Unanswered, Unanswered, Unanswered
	seen := []string{unmeasured}
	if s.messages > 0 {
		seen = []string{s.String()}
		narrow = answer(s.p99 <= 4*max(s.median, 1))
		wide = answer(s.p99 >= 1000*max(s.median, 1))
		bandwidth = answer(s.largeBytes*100 >= s.bytes*95 && s.smallMessages*20 < s.messages)
	}
	// Both are about the sizes: one of the two sentences is said, with the numbers. Sizes
	// in between are too many for a narrow band, and no more than that.
	narrowly, widely := narrowBand, wideBand
	for _, text := range []*string{&narrowly.yes, &narrowly.no, &widely.yes} {
		*text += ": " + s.spread()
	}
	if wide == Yes {
		narrowly.no = ""
	}
	add("use", narrowly, narrow, seen...)
	tail, why := e.tail()
	add("use", longTail, tail, why)
	own, evidence := e.alone()
	add("use", ownNIC, own, evidence...)
	base, missing := e.based()
	add("use", baseTuning, base, missing...)

	add("leave", widely, wide, seen...)
	add("leave", bandwidthFirst, bandwidth, seen...)
	virtual, evidence2 := e.virtual()
	add("leave", virtualised, virtual, evidence2...)
	shared := map[Answer]Answer{Yes: No, No: Yes, Unanswered: Unanswered}[own]
	add("leave", sharedNIC, shared, evidence...)

	if s.messages > 0 {
		add("question", howBig, Yes, s.String())
	} else {
		add("question", howBig, Unanswered, unmeasured)
	}
	add("question", bandwidthToo, bandwidth, seen...)
	c, can, how := e.applicable()
	add("question", c, can, how...)
	return out
}

func answer(yes bool) Answer {
	if yes {
		return Yes
	}
	return No
}

// A sizing is the sizes of messages, as bins of powers of two tell them.
type sizing struct {
	messages, bytes, smallMessages, largeBytes uint64
	median, p99                                int64 // upper ends of their bins
}

func (s sizing) String() string {
	return param.Count(s.messages, "message") + " sent: " + s.spread()
}

// spread is the typical size beside the large ones. Bins end below a power of two.
func (s sizing) spread() string {
	return fmt.Sprintf("half below %s, 99 of 100 below %s", param.FormatBytes(s.median+1), param.FormatBytes(s.p99+1))
}

// large is where a message counts as one for bandwidth.
const large = 64 << 10

// sizes adds up what the workload's transports have sent.
func (e *judge) sizes() sizing {
	bins := map[int64]uint64{}
	var s sizing
	for _, t := range e.workload.Transports {
		for _, c := range t.Conns {
			for _, b := range c.Sent.Sizes {
				bins[b.From] += b.Count
			}
		}
	}
	var froms []int64
	for from, n := range bins {
		froms = append(froms, from)
		s.messages += n
	}
	slices.Sort(froms)
	below := uint64(0)
	for _, from := range froms {
		n := bins[from]
		end := binEnd(from)
		if below += n; s.median == 0 && 2*below >= s.messages {
			s.median = end
		}
		if s.p99 == 0 && 100*below >= 99*s.messages {
			s.p99 = end
		}
		s.bytes += n * uint64(max(from, 1))
		if from >= large {
			s.largeBytes += n * uint64(from)
		} else {
			s.smallMessages += n
		}
	}
	return s
}

// binEnd is the largest size of the bin that starts at from.
func binEnd(from int64) int64 {
	if from <= 0 || from > 1<<40 {
		return max(from, 0)
	}
	return int64(1)<<bits.Len64(uint64(from)) - 1
}

// tail compares P99 and P50 of the times that transports have measured.
func (e *judge) tail() (Answer, string) {
	times := map[int64]uint64{}
	total := uint64(0)
	for _, t := range e.workload.Transports {
		for _, c := range t.Conns {
			for _, tier := range c.Sent.Tiers {
				for _, b := range tier.Times {
					times[b.From] += b.Count
					total += b.Count
				}
			}
		}
	}
	if total < 1000 {
		timed := "no message was timed"
		if total > 0 {
			timed = param.Count(total, "timed message") + ", fewer than 1000"
		}
		return Unanswered, timed + ": measure with rdmatune bench, and say yourself whether latency matters"
	}
	at := func(part uint64) int64 {
		var froms []int64
		for from := range times {
			froms = append(froms, from)
		}
		slices.Sort(froms)
		below := uint64(0)
		for _, from := range froms {
			if below += times[from]; 100*below >= part*total {
				return from
			}
		}
		return 0
	}
	p50, p99 := at(50), at(99)
	return answer(p99 >= 3*max(p50, 1)), fmt.Sprintf("of %d timed messages P50 is about %d ns and P99 about %d ns; whether latency matters is yours to say", total, p50, p99)
}

// alone says whether nobody else uses the workload's NIC.
func (e *judge) alone() (Answer, []string) {
	for _, d := range e.Facts.RDMA {
		if d.Name != e.workload.Device {
			continue
		}
		f := e.shared(d, e.workload)
		evidence := []string{f.Message}
		for _, ev := range f.Evidence {
			evidence = append(evidence, ev.Path+" = "+ev.Value)
		}
		switch f.Level {
		case Fine:
			return Yes, evidence
		case Unknown:
			return Unanswered, evidence
		}
		return No, evidence
	}
	return Unanswered, []string{"the workload names no device of this node"}
}

// based says whether the spec and the node have the base tuning.
func (e *judge) based() (Answer, []string) {
	var missing []string
	for _, kind := range []param.Kind{param.Pinning, param.Frequency, param.IRQ} {
		if !slices.Contains(e.workload.Tuned, string(kind)) {
			missing = append(missing, "the spec has no "+string(kind))
		}
	}
	for _, f := range e.report.Findings {
		if f.Level == Warning && (f.Check == "idle-states" || f.Check == "daemons" || f.Check == "frequency" && !slices.Contains(e.workload.Tuned, string(param.Frequency))) {
			missing = append(missing, f.Message)
		}
	}
	missing = append(missing, e.workload.Due...)
	if len(missing) == 0 {
		return Yes, []string{"pinning, frequency and interrupts are in the spec, and nothing on the node works against them"}
	}
	return No, missing
}

func (e *judge) virtual() (Answer, []string) {
	switch v := e.Facts.Virtualised; {
	case e.Facts.Simulated:
		return Unanswered, []string{"the node is simulated"}
	case v == nil:
		return Unanswered, []string{"neither DMI nor /proc/cpuinfo tells"}
	case *v == "":
		return No, []string{"hardware"}
	default:
		return Yes, []string{*v}
	}
}

// applicable says whether a hint can be put into force for what runs, or is already.
func (e *judge) applicable() (criterion, Answer, []string) {
	live, following := 0, 0
	for _, t := range e.workload.Transports {
		if t.Err != "" {
			continue
		}
		live++
		if slices.Contains(e.workload.Following, t.PID) {
			following++
		}
	}
	c := canApply
	if live > 0 && following == live {
		c = isApplied
	}
	virtual, _ := e.virtual()
	var evidence []string
	if n := live - following; n > 0 {
		evidence = append(evidence, param.Count(n, "process")+" on rdmatune's transport, for apply to switch")
	}
	if following > 0 {
		evidence = append(evidence, param.Count(following, "process")+" on rdmatune's transport, as the spec wants it already")
	}
	asked, others, unseen := len(e.workload.PIDs), len(e.workload.Libraries), len(e.workload.Unseen)
	if others > 0 {
		evidence = append(evidence, param.Count(others, "process")+" on another library, whose variables count at the next start (rdmatune env)")
	}
	if unseen > 0 {
		evidence = append(evidence, param.Count(unseen, "process")+" of which the libraries are not observable")
	}
	switch {
	case live == 0 && asked == 0:
		return c, Unanswered, []string{"no process of the workload is running"}
	case live == 0 && others == 0 && unseen > 0:
		return c, Unanswered, evidence
	case live == 0 && others == 0:
		return c, Unanswered, []string{"no process of the workload uses a communication library"}
	case virtual == Yes:
		return c, Unanswered, append(evidence, "on a virtual machine it may read back right and change nothing: only a measurement tells")
	case live > 0:
		return c, Yes, evidence
	}
	return c, No, evidence
}
