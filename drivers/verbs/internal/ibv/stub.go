//go:build !cgo

package ibv

import "errors"

// Built says whether this build has verbs.
const Built = false

// errBuilt is every function's answer in a build without cgo.
var errBuilt = errors.New("built without verbs (cgo was off)")

// Handles of the library's objects; there are none here.
type (
	Context struct{}
	PD      struct{}
	MR      struct{}
	Channel struct{}
	CQ      struct{}
	QP      struct{}
)

// Devices says that the build has no verbs.
func Devices() ([]string, error) { return nil, errBuilt }

// Open says that the build has no verbs; without a Context nothing below is reached.
func Open(name string) (Context, error) { return Context{}, errBuilt }

// HasDMABuf is false.
func HasDMABuf() bool { return false }

func (Context) Close() error                          { return errBuilt }
func (Context) Query() (DeviceAttr, error)            { return DeviceAttr{}, errBuilt }
func (Context) QueryPort(uint8) (PortAttr, error)     { return PortAttr{}, errBuilt }
func (Context) QueryGID(uint8, int) ([16]byte, error) { return [16]byte{}, errBuilt }
func (Context) AsyncFD() int                          { return -1 }
func (Context) TakeAsync() (kind int, number uint32, ok bool, err error) {
	return 0, 0, false, errBuilt
}
func (Context) AllocPD() (PD, error)                { return PD{}, errBuilt }
func (Context) NewChannel() (Channel, error)        { return Channel{}, errBuilt }
func (Context) NewCQ(int, Channel, int) (CQ, error) { return CQ{}, errBuilt }
func (PD) Close() error                             { return errBuilt }
func (PD) RegMR([]byte, int) (MR, error)            { return MR{}, errBuilt }
func (PD) RegDMABuf(fd int, offset, length, iova uint64, access int) (MR, error) {
	return MR{}, errBuilt
}
func (PD) CreateQP(send, recv CQ, want Cap) (QP, error) { return QP{}, errBuilt }
func (MR) LKey() uint32                                 { return 0 }
func (MR) RKey() uint32                                 { return 0 }
func (MR) Close() error                                 { return errBuilt }
func (Channel) FD() int                                 { return -1 }
func (Channel) TakeEvents() (int, error)                { return 0, errBuilt }
func (Channel) Close() error                            { return errBuilt }
func (CQ) Cap() int                                     { return 0 }
func (CQ) ReqNotify(bool) error                         { return errBuilt }
func (CQ) Poll([]WC, int) (int, error)                  { return 0, errBuilt }
func (CQ) Moderate(count, periodUsec uint16) error      { return errBuilt }
func (CQ) Close() error                                 { return errBuilt }
func (QP) Num() uint32                                  { return 0 }
func (QP) Query() (state int, got Cap, err error)       { return 0, Cap{}, errBuilt }
func (QP) Init(uint8) error                             { return errBuilt }
func (QP) Connect(Connect) error                        { return errBuilt }
func (QP) Fail() error                                  { return errBuilt }
func (QP) PostSend([]SendWR) (int, error)               { return 0, errBuilt }
func (QP) PostRecv([]RecvWR) (int, error)               { return 0, errBuilt }
func (QP) Close() error                                 { return errBuilt }
