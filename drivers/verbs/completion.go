package verbs

import "fmt"

// Status is a work completion's status, with libibverbs' numbers.
type Status int32

// The statuses that the transport tells apart.
const (
	StatusSuccess     Status = 0
	StatusLocLen      Status = 1 // message longer than the receive
	StatusLocQPOp     Status = 2 // what some devices say instead of 1 and 4
	StatusLocProt     Status = 4
	StatusFlushed     Status = 5  // the queue pair was in the error state
	StatusLocAccess   Status = 8  // the region does not allow it
	StatusRemInvalid  Status = 9  // the peer's receive was too short
	StatusRemAccess   Status = 10 // no such region at the peer, outside it, or no remote write access
	StatusRemOp       Status = 11 // what some devices say instead of 9
	StatusRetryExc    Status = 12
	StatusRNRRetryExc Status = 13
)

// String names the status.
func (s Status) String() string {
	switch s {
	case StatusSuccess:
		return "success"
	case StatusLocLen:
		return "local length error"
	case StatusLocQPOp:
		return "local queue pair operation error"
	case StatusLocProt:
		return "local protection error"
	case StatusFlushed:
		return "flushed"
	case StatusLocAccess:
		return "local access error"
	case StatusRemInvalid:
		return "remote invalid request"
	case StatusRemAccess:
		return "remote access error"
	case StatusRemOp:
		return "remote operation error"
	case StatusRetryExc:
		return "transport retry count exceeded"
	case StatusRNRRetryExc:
		return "RNR retry count exceeded"
	}
	return fmt.Sprintf("status %d", int(s))
}

// A WC is one work completion. Only ID, QPN and Status are valid when Status is
// not StatusSuccess.
type WC struct {
	ID      uint64
	ByteLen int // bytes received
	Status  Status
	QPN     uint32
	Imm     uint32 // immediate data, in host order, when HasImm
	Recv    bool   // completion of a receive
	HasImm  bool   // IBV_WC_WITH_IMM: the message received came with Imm
}
