package verbs

import "fmt"

// MaxProbedInline bounds what ProbeInline asks for, in bytes; no known device grants
// more than 1 KiB.
const MaxProbedInline = 4096

// ProbeInline finds the largest inline send of one segment, in bytes, that the device
// grants a reliable connected queue pair, by bisection: no attribute says it. The queue
// pairs that it makes are gone when it returns.
func ProbeInline(pd PD, cq CQ) (int, error) {
	try := func(n int) (int, error) {
		qp, err := pd.CreateQP(QPInitAttr{SendCQ: cq, RecvCQ: cq, Cap: QPCap{SendWR: 1, RecvWR: 1, Inline: n}})
		if err != nil {
			return 0, err
		}
		return qp.Cap().Inline, qp.Close()
	}
	best, err := try(0)
	if err != nil {
		return 0, fmt.Errorf("probe inline size: %w", err)
	}
	for lo, hi := best+1, MaxProbedInline; lo <= hi; {
		mid := (lo + hi) / 2
		got, err := try(mid)
		if err != nil {
			hi = mid - 1
			continue
		}
		best = max(best, got)
		lo = max(mid, got) + 1
	}
	return best, nil
}
