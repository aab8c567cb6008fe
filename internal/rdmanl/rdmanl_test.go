package rdmanl

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func attr(typ uint16, value []byte) []byte {
	b := native.AppendUint16(nil, uint16(attrHeader+len(value)))
	b = native.AppendUint16(b, typ)
	b = append(b, value...)
	return append(b, make([]byte, (4-len(value)%4)%4)...)
}

func nest(typ uint16, parts ...[]byte) []byte { return attr(typ|unix.NLA_F_NESTED, join(parts...)) }

func join(parts ...[]byte) []byte {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

func str(typ uint16, s string) []byte { return attr(typ, append([]byte(s), 0)) }

func u8(typ uint16, v byte) []byte { return attr(typ, []byte{v}) }

func u64(typ uint16, v uint64) []byte { return attr(typ, native.AppendUint64(nil, v)) }

// qp is one entry of a queue pair list.
func qp(number uint32, extra ...[]byte) []byte {
	return nest(attrQP+1, append([][]byte{u32(attrLQPN, number), u8(attrType, 2), u8(attrState, 3)}, extra...)...)
}

// kernel answers like one with a device "rxe0": by command, a list of attempts.
type kernel map[uint16][]func() ([][]byte, error)

func (k kernel) conn() *Conn {
	return &Conn{do: func(command uint16, _ int, _ []byte) ([][]byte, error) {
		tries := k[command]
		if len(tries) == 0 {
			return nil, nil
		}
		if len(tries) > 1 {
			k[command] = tries[1:]
		}
		return tries[0]()
	}}
}

func answers(err error, messages ...[]byte) func() ([][]byte, error) {
	return func() ([][]byte, error) { return messages, err }
}

func device() []byte {
	return join(u32(attrDevIndex, 3), str(attrDevName, "rxe0"), u32(attrPortIndex, 1), str(attrFirmware, "1.2"), str(attrProtocol, "roce"), u8(attrDIM, 0))
}

func TestRead(t *testing.T) {
	addr4 := append(native.AppendUint16(nil, unix.AF_INET), 0x1d, 0x2f, 10, 77, 0, 1, 0, 0, 0, 0)
	k := kernel{
		cmdGet:     {answers(nil, device())},
		cmdPortGet: {answers(nil, join(u32(attrPortIndex, 1), u8(attrPortState, 4), u8(attrPhysState, 5), u32(attrNdevIndex, 2), str(attrNdevName, "eth0")))},
		cmdQPGet: {answers(nil, join(u32(attrDevIndex, 3), nest(attrQP,
			qp(18, u32(attrPortIndex, 1), u32(attrRQPN, 19), u32(attrPID, 4711), u32(attrPDN, 5)),
			qp(1, str(attrKernelName, "ib_core")), qp(18), qp(20))))},
		cmdCQGet:   {answers(nil, nest(attrCQ, nest(attrCQ+1, u32(attrCQN, 7), u32(attrCQE, 127), u64(attrUseCount, 2), u32(attrPID, 4711), u8(attrPollCtx, 9))))},
		cmdMRGet:   {answers(nil, nest(attrMR, nest(attrMR+1, u32(attrMRN, 1), u64(attrMRLen, 1<<33))))},
		cmdCtxGet:  {answers(fmt.Errorf("no such command: %w", unix.EINVAL))},
		cmdCMIDGet: {answers(nil, nest(attrCMID, nest(attrCMID+1, u32(attrCMIDN, 4), u8(attrState, 5), u32(attrPS, 0x106), attr(attrDstAddr, addr4))))},
	}
	got, err := k.conn().Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := &Table{
		Devices: []Device{{Index: 3, Name: "rxe0", Ports: 1, Firmware: "1.2", Protocol: "roce", AdaptiveModeration: new(false)}},
		Links:   []Link{{Device: "rxe0", Port: 1, State: "ACTIVE", PhysState: "LINK_UP", Netdev: "eth0", NetdevIndex: 2}},
		QPs: []QP{
			{Device: "rxe0", Number: 1, Type: "RC", State: "RTS", Owner: Owner{Kernel: "ib_core"}},
			{Device: "rxe0", Port: new(uint32(1)), Number: 18, Peer: new(uint32(19)), Type: "RC", State: "RTS", PDNumber: new(uint32(5)), Owner: Owner{TID: 4711}},
			{Device: "rxe0", Number: 20, Type: "RC", State: "RTS"},
		},
		CQs:      []CQ{{Device: "rxe0", Number: 7, Entries: 127, Users: 2, PollCtx: "9", Owner: Owner{TID: 4711}}},
		MRs:      []MR{{Device: "rxe0", Number: 1, Bytes: 1 << 33}},
		CMIDs:    []CMID{{Device: "rxe0", Number: 4, State: "CONNECT", Space: "TCP", Dst: netip.MustParseAddrPort("10.77.0.1:7471")}},
		Problems: []Problem{{"rxe0", "contexts", "this kernel does not list them (no such command: invalid argument)"}},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

// TestInterrupted: a list that changes while it is made is asked for again, and is
// never shown as whole when that does not help.
func TestInterrupted(t *testing.T) {
	part, whole := nest(attrQP, qp(5)), nest(attrQP, qp(5), qp(6))
	k := kernel{cmdGet: {answers(nil, device())}, cmdQPGet: {answers(errInterrupted, part), answers(errInterrupted, part), answers(nil, whole)}}
	got, err := k.conn().Read(t.Context())
	if err != nil || len(got.QPs) != 2 {
		t.Errorf("after two interrupted attempts: %+v, %v", got, err)
	}
	for _, p := range got.Problems {
		if p.What == "queue pairs" {
			t.Errorf("a whole list has the problem %+v", p)
		}
	}
	k = kernel{cmdGet: {answers(errInterrupted, device())}, cmdQPGet: {answers(errInterrupted, part)}}
	got, err = k.conn().Read(t.Context())
	if err != nil || len(got.QPs) != 1 {
		t.Fatalf("for ever interrupted: %+v, %v", got, err)
	}
	said := 0
	for _, p := range got.Problems {
		if strings.HasPrefix(p.Reason, "incomplete: ") {
			said++
		}
	}
	if said != 2 {
		t.Errorf("partial lists of devices and queue pairs are not said: %+v", got.Problems)
	}
}

func TestRefused(t *testing.T) {
	if _, err := (kernel{cmdGet: {answers(unix.EPERM)}}).conn().Read(t.Context()); !errors.Is(err, unix.EPERM) {
		t.Errorf("refused devices: %v", err)
	}
	got, err := (kernel{cmdGet: {answers(nil, device(), []byte{9})}, cmdQPGet: {answers(unix.EPERM)}}).conn().Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(got.Problems)
	if !strings.Contains(text, "CAP_NET_ADMIN") || !strings.Contains(text, errTruncated.Error()) {
		t.Errorf("problems: %s", text)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (kernel{}).conn().Read(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestHostile: no message makes the decoder panic or read beyond its end.
func TestHostile(t *testing.T) {
	for name, b := range map[string][]byte{
		"half a header":        {8, 0},
		"length 0":             {0, 0, 1, 0},
		"length 3":             {3, 0, 1, 0},
		"beyond the end":       {200, 0, 1, 0, 1, 2, 3, 4},
		"a table of garbage":   attr(attrQP, []byte{1, 2, 3}),
		"an entry of garbage":  nest(attrQP, attr(attrQP+1, []byte{250, 0, 0, 0})),
		"a number of 2 bytes":  nest(attrQP, nest(attrQP+1, attr(attrLQPN, []byte{1, 2}))),
		"a number of 64 bits":  nest(attrQP, nest(attrQP+1, u64(attrLQPN, 1<<40))),
		"a type of three byte": nest(attrQP, nest(attrQP+1, attr(attrType, []byte{1, 2, 3}))),
	} {
		if got, err := decodeQPs("d", b); err == nil {
			t.Errorf("%s: %+v, want an error", name, got)
		}
	}
	for name, b := range map[string][]byte{
		"no name":        u32(attrDevIndex, 1),
		"an empty name":  join(u32(attrDevIndex, 1), attr(attrDevName, nil)),
		"a table inside": nest(attrQP, qp(1)),
	} {
		if got, err := decodeDevice(b); err == nil {
			t.Errorf("%s: %+v, want an error", name, got)
		}
	}
	d, err := decodeDevice(join(str(attrDevName, "a"), str(attrDevName, "b\x1b["+strings.Repeat("x", 100)), attr(0x3fff, nil)))
	if err != nil || d.Name != "b?["+strings.Repeat("x", 61) {
		t.Errorf("two names, the last unprintable: %+v, %v", d, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(device())
	f.Add(nest(attrQP, qp(1, u32(attrPID, 1), str(attrKernelName, "ib_core"))))
	f.Add(nest(attrCMID, nest(attrCMID+1, attr(attrSrcAddr, []byte{10, 0, 1, 2, 3, 4, 5, 6}))))
	f.Add([]byte{3, 0, 2, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := decodeDevice(b); err == nil && (d.Name == "" || len(d.Name) > 3*maxText) {
			t.Errorf("device %q", d.Name)
		}
		_, _ = decodeLink("d", b)
		qps, _ := decodeQPs("d", b)
		cqs, _ := decodeCQs("d", b)
		mrs, _ := decodeMRs("d", b)
		ctxs, _ := decodeContexts("d", b)
		ids, _ := decodeCMIDs("d", b)
		if n := len(qps) + len(cqs) + len(mrs) + len(ctxs) + len(ids); n > len(b)/attrHeader {
			t.Errorf("%d entries of %d bytes", n, len(b))
		}
		for _, q := range qps {
			if q.TID < 0 || q.Device != "d" {
				t.Errorf("queue pair %+v", q)
			}
		}
	})
}
