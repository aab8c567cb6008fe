package transport

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// A message on the control channel is a 32-bit length and a JSON object of that
// length, at most maxControl bytes.
const maxControl = 4 << 10

// A controlType says what a control message is; the texts are on the wire.
type controlType string

const (
	msgHello    controlType = "hello"    // dialer: version, provider, wants
	msgPropose  controlType = "propose"  // opener: epoch, nonce, wants
	msgAccept   controlType = "accept"   // wants, lanes; answers hello and propose
	msgRefuse   controlType = "refuse"   // reason, retry after
	msgConnect  controlType = "connect"  // lanes
	msgReady    controlType = "ready"    // this end's new lanes are ready
	msgAbort    controlType = "abort"    // reason
	msgReleased controlType = "released" // this end needs the lanes before epoch no more
	msgBye      controlType = "bye"      // last sequence sent, last one received by the program
)

// maxLanes is how many lanes a connection can have.
const maxLanes = 2

// A want is what an end would like to send with on a lane, or what it lets the
// peer have.
type want struct {
	Credits int `json:"credits"` // receive buffers for messages and offers
	Segment int `json:"segment"` // bytes of each, header included
}

// A wireLane is one lane as its maker tells the peer of it.
type wireLane struct {
	Grant    want     `json:"grant"`
	Endpoint endpoint `json:"endpoint"`
}

// An endpoint is verbs.Endpoint on the wire.
type endpoint struct {
	GID     string `json:"gid"` // 32 hexadecimal digits
	LID     uint16 `json:"lid"`
	QPN     uint32 `json:"qpn"`
	PSN     uint32 `json:"psn"`
	Service uint16 `json:"service"`
	MTU     int    `json:"mtu"` // bytes, the port's active one
}

// A controlMsg is one control message; which fields matter follows from Type.
type controlMsg struct {
	Type         controlType `json:"type"`
	Version      int         `json:"version,omitempty"`
	Provider     string      `json:"provider,omitempty"`
	Epoch        uint32      `json:"epoch,omitempty"`
	Nonce        uint64      `json:"nonce,omitempty"`
	Wants        []want      `json:"wants,omitempty"`     // by lane
	Unordered    bool        `json:"unordered,omitempty"` // with wants: the sender's messages keep their order on each lane only
	Lanes        []wireLane  `json:"lanes,omitempty"`
	Mirror       *Settings   `json:"mirror,omitempty"` // hello: what the dialer would have this end send by
	Reason       string      `json:"reason,omitempty"`
	RetryAfterMS int64       `json:"retry_after_ms,omitempty"`
	TimeoutMS    int64       `json:"timeout_ms,omitempty"` // propose: the opener's drain timeout
	Last         uint64      `json:"last,omitempty"`
	Received     uint64      `json:"received,omitempty"`
}

// Bounds of what a peer may say.
const (
	maxCredits  = 1 << 14
	maxSegment  = headerLen + 1<<20
	minSegment  = 64
	maxReason   = 200
	maxWaitMS   = 30 * 24 * 3_600_000
	maxProvider = 16
)

// check reports what is wrong with m, which a peer sent.
func (m *controlMsg) check() error {
	if len(m.Wants) > maxLanes || len(m.Lanes) > maxLanes {
		return fmt.Errorf("%s: %d and %d lanes", m.Type, len(m.Wants), len(m.Lanes))
	}
	for _, w := range m.Wants {
		if err := w.check(); err != nil {
			return fmt.Errorf("%s: %w", m.Type, err)
		}
	}
	for i := range m.Lanes {
		if err := m.Lanes[i].check(); err != nil {
			return fmt.Errorf("%s: %w", m.Type, err)
		}
	}
	if len(m.Reason) > maxReason || m.RetryAfterMS < 0 || m.RetryAfterMS > maxWaitMS ||
		m.TimeoutMS < 0 || m.TimeoutMS > maxWaitMS || len(m.Provider) > maxProvider {
		return fmt.Errorf("%s: a field is out of bounds", m.Type)
	}
	if m.Mirror != nil {
		if err := m.Mirror.Check(); err != nil || m.Type != msgHello {
			return errors.Join(fmt.Errorf("%s: %w", m.Type, errMirror), err)
		}
	}
	for _, r := range m.Reason {
		if !strconv.IsPrint(r) {
			return fmt.Errorf("%s: a reason with the character %U", m.Type, r)
		}
	}
	need := map[controlType]struct{ wants, lanes bool }{
		msgHello: {true, false}, msgPropose: {true, false}, msgAccept: {true, true}, msgConnect: {false, true},
		msgRefuse: {}, msgReady: {}, msgAbort: {}, msgReleased: {}, msgBye: {},
	}
	n, known := need[m.Type]
	if !known {
		return fmt.Errorf("unknown message %.20q", m.Type)
	}
	if n.wants != (len(m.Wants) > 0) || n.lanes != (len(m.Lanes) > 0) {
		return fmt.Errorf("%s: wrong set of fields", m.Type)
	}
	return nil
}

func (w want) check() error {
	if w.Credits < 1 || w.Credits > maxCredits || w.Segment < minSegment || w.Segment > maxSegment {
		return fmt.Errorf("%d credits of %d bytes", w.Credits, w.Segment)
	}
	return nil
}

func (l *wireLane) check() error {
	if err := l.Grant.check(); err != nil {
		return err
	}
	e := &l.Endpoint
	if e.QPN >= 1<<24 || e.PSN >= 1<<24 || !validMTU(e.MTU) {
		return fmt.Errorf("endpoint qpn %#x psn %#x mtu %d", e.QPN, e.PSN, e.MTU)
	}
	_, err := e.verbs()
	return err
}

func validMTU(n int) bool {
	return n == 256 || n == 512 || n == 1024 || n == 2048 || n == 4096
}

func (e *endpoint) verbs() (verbs.Endpoint, error) {
	out := verbs.Endpoint{LID: e.LID, QPN: e.QPN, PSN: e.PSN, Service: e.Service}
	if len(e.GID) != hex.EncodedLen(len(out.GID)) {
		return out, fmt.Errorf("gid of %d digits", len(e.GID))
	}
	if _, err := hex.Decode(out.GID[:], []byte(e.GID)); err != nil {
		return out, fmt.Errorf("gid: %w", err)
	}
	return out, nil
}

func wireEndpoint(e verbs.Endpoint, mtu int) endpoint {
	return endpoint{GID: hex.EncodeToString(e.GID[:]), LID: e.LID, QPN: e.QPN, PSN: e.PSN, Service: e.Service, MTU: mtu}
}

// writeControl writes one message in one write.
func writeControl(w io.Writer, m *controlMsg) error {
	if len(m.Reason) > maxReason {
		m.Reason = m.Reason[:maxReason]
	}
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	_, err = w.Write(append(b, body...))
	return err
}

// readControl reads and checks one message.
func readControl(r io.Reader) (*controlMsg, error) {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(n[:])
	if size > maxControl {
		return nil, fmt.Errorf("control message of %d bytes: %w", size, ErrProtocol)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	var m controlMsg
	// Unknown fields are ignored: a later version may add some.
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(&m); err != nil {
		return nil, fmt.Errorf("control message: %w", err)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("control message: %w", err)
	}
	return &m, nil
}
