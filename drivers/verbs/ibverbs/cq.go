package ibverbs

import (
	"fmt"
	"math"
	"sync"
	"syscall"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/internal/ibv"
)

type cq struct {
	ibv.CQ
	mu  sync.Mutex
	buf [ibv.Batch]ibv.WC // guarded by mu
}

func (q *cq) Poll(wc []verbs.WC) (int, error) { return q.Spin(wc, 1) }

func (q *cq) Spin(wc []verbs.WC, polls int) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, err := q.CQ.Poll(q.buf[:min(len(wc), len(q.buf))], min(polls, math.MaxInt32))
	for i := range n {
		w := &q.buf[i]
		wc[i] = verbs.WC{ID: w.ID, Status: verbs.Status(w.Status), Recv: w.IsRecv != 0, ByteLen: int(w.ByteLen), QPN: w.QPN}
	}
	return n, err
}

func (q *cq) Moderate(count, periodUsec int) error {
	if count < 0 || count > math.MaxUint16 || periodUsec < 0 || periodUsec > math.MaxUint16 {
		return fmt.Errorf("moderate cq by %d completions or %d us: %w", count, periodUsec, syscall.EINVAL)
	}
	return q.CQ.Moderate(uint16(count), uint16(periodUsec))
}
