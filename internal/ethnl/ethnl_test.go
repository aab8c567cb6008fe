package ethnl

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// reply builds a generic netlink message of attributes.
func reply(attrs ...[]byte) []byte {
	b := message(0, 1)
	for _, a := range attrs {
		b = append(b, a...)
	}
	return b
}

func word(typ uint16, v uint32) []byte { return appendAttr(nil, typ, native.AppendUint32(nil, v)) }

func TestParseCoalesce(t *testing.T) {
	header := appendAttr(nil, unix.ETHTOOL_A_COALESCE_HEADER|unix.NLA_F_NESTED, appendAttr(nil, unix.ETHTOOL_A_HEADER_DEV_NAME, []byte("eth0\x00")))
	full := reply(header,
		word(unix.ETHTOOL_A_COALESCE_RX_USECS, 8), word(unix.ETHTOOL_A_COALESCE_RX_MAX_FRAMES, 128),
		word(unix.ETHTOOL_A_COALESCE_TX_USECS, 1<<32-1), word(unix.ETHTOOL_A_COALESCE_TX_MAX_FRAMES, 0),
		appendAttr(nil, unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX, []byte{1}), appendAttr(nil, unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX, []byte{0}),
		word(0x3fff, 7))
	for name, tc := range map[string]struct {
		message []byte
		want    Coalesce
	}{
		"all": {full, Coalesce{
			AdaptiveRX: new(true), AdaptiveTX: new(false), RXUsecs: new(uint32(8)), RXFrames: new(uint32(128)),
			TXUsecs: new(uint32(1<<32 - 1)), TXFrames: new(uint32(0)),
		}},
		"one":      {reply(header, word(unix.ETHTOOL_A_COALESCE_RX_USECS, 3)), Coalesce{RXUsecs: new(uint32(3))}},
		"none":     {reply(header), Coalesce{}},
		"no attrs": {reply(), Coalesce{}},
	} {
		got, err := parseCoalesce(tc.message)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	for name, bad := range map[string][]byte{
		"nothing":          nil,
		"short header":     {1, 1},
		"length 0":         reply([]byte{0, 0, 2, 0}),
		"length 3":         reply([]byte{3, 0, 2, 0}),
		"beyond the end":   reply([]byte{200, 0, 2, 0, 1, 2, 3, 4}),
		"half a header":    reply([]byte{8, 0}),
		"word of 2 bytes":  reply(appendAttr(nil, unix.ETHTOOL_A_COALESCE_RX_USECS, []byte{1, 0})),
		"flag of no bytes": reply(appendAttr(nil, unix.ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX, nil)),
	} {
		if got, err := parseCoalesce(bad); err == nil {
			t.Errorf("%s: %+v, want an error", name, got)
		}
	}
}

func FuzzParseCoalesce(f *testing.F) {
	f.Add(reply(word(unix.ETHTOOL_A_COALESCE_RX_USECS, 8)))
	f.Add(reply([]byte{3, 0, 2, 0}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseCoalesce(b)
		if err != nil {
			return
		}
		again, err := parseCoalesce(appendCoalesce(message(0, 1), c))
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if diff := cmp.Diff(c, again); diff != "" {
			t.Fatal(diff)
		}
	})
}

// fake answers requests like a kernel: the messages are real, the kernel is not.
func fake(answers map[uint8]error) *Conn {
	return &Conn{family: 20, do: func(family uint16, flags int, payload []byte) ([][]byte, error) {
		if err := answers[payload[0]]; err != nil {
			return nil, err
		}
		if family == 0x10 {
			return [][]byte{reply()}, nil
		}
		return nil, nil
	}}
}

func TestErrors(t *testing.T) {
	refusal := fmt.Errorf("%w: cannot modify an unsupported parameter", unix.EINVAL)
	c := fake(map[uint8]error{unix.ETHTOOL_MSG_COALESCE_GET: unix.EOPNOTSUPP, unix.ETHTOOL_MSG_COALESCE_SET: refusal})
	if _, err := c.Get("eth0"); !errors.Is(err, ErrNotSupported) || !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("Get: %v", err)
	}
	err := c.Set("eth0", Coalesce{RXUsecs: new(uint32(1))})
	if !errors.Is(err, unix.EINVAL) || errors.Is(err, ErrNotSupported) || !strings.Contains(err.Error(), "unsupported parameter") {
		t.Errorf("Set: %v", err)
	}
	if _, err := fake(nil).Get("eth0"); err == nil {
		t.Error("Get took no answer for one")
	}
	if err := fake(nil).findFamily(); !errors.Is(err, ErrNotSupported) {
		t.Errorf("a family without a number: %v", err)
	}
	for _, name := range []string{"", "sixteen-letters-"} {
		if _, err := c.Get(name); err == nil || errors.Is(err, ErrNotSupported) {
			t.Errorf("Get(%q): %v", name, err)
		}
	}
}

// TestSetRequest holds the wire form of a request, which no kernel on the test
// machine checks field by field.
func TestSetRequest(t *testing.T) {
	var sent []byte
	c := &Conn{do: func(_ uint16, _ int, payload []byte) ([][]byte, error) { sent = payload; return nil, nil }}
	if err := c.Set("tap0", Coalesce{RXFrames: new(uint32(5))}); err != nil {
		t.Fatal(err)
	}
	// message header; nested header with the name; attribute 3 with 5.
	const want = "14010000" + "10000180" + "0900020074617030" + "00000000" + "0800030005000000"
	if got := hex.EncodeToString(sent); got != want {
		t.Errorf("request\n%s, want\n%s", got, want)
	}
}
