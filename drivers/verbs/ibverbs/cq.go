package ibverbs

import (
	"fmt"
	"math"
	"syscall"
	"unsafe"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/drivers/verbs/internal/ibv"
)

type cq struct{ ibv.CQ }

func (q *cq) Poll(wc []verbs.WC) (int, error) { return q.Spin(wc, 1) }

// Spin lets C write to wc itself: no copy and no lock but the library's own.
func (q *cq) Spin(wc []verbs.WC, polls int) (int, error) {
	own := unsafe.Slice((*ibv.WC)(unsafe.Pointer(unsafe.SliceData(wc))), len(wc))
	return q.CQ.Poll(own, min(polls, math.MaxInt32))
}

// Spin needs the two to be laid out alike; it does not compile otherwise.
var (
	_ = [1]int{}[unsafe.Sizeof(verbs.WC{})-unsafe.Sizeof(ibv.WC{})]
	_ = [1]int{}[unsafe.Offsetof(verbs.WC{}.Status)-unsafe.Offsetof(ibv.WC{}.Status)]
	_ = [1]int{}[unsafe.Offsetof(verbs.WC{}.ByteLen)-unsafe.Offsetof(ibv.WC{}.ByteLen)]
	_ = [1]int{}[unsafe.Offsetof(verbs.WC{}.QPN)-unsafe.Offsetof(ibv.WC{}.QPN)]
	_ = [1]int{}[unsafe.Offsetof(verbs.WC{}.Imm)-unsafe.Offsetof(ibv.WC{}.Imm)]
	_ = [1]int{}[unsafe.Offsetof(verbs.WC{}.Recv)-unsafe.Offsetof(ibv.WC{}.IsRecv)]
	_ = [1]int{}[unsafe.Offsetof(verbs.WC{}.HasImm)-unsafe.Offsetof(ibv.WC{}.HasImm)]
)

func (q *cq) Moderate(count, periodUsec int) error {
	if count < 0 || count > math.MaxUint16 || periodUsec < 0 || periodUsec > math.MaxUint16 {
		return fmt.Errorf("moderate cq by %d completions or %d us: %w", count, periodUsec, syscall.EINVAL)
	}
	return q.CQ.Moderate(uint16(count), uint16(periodUsec))
}
