package switchover

import "testing"

func TestLateAndHostile(t *testing.T) {
	for kind := Open; kind <= Timeout; kind++ {
		m := New(5)
		if kind == Open || kind == Propose {
			continue
		}
		for _, epoch := range []uint32{0, 4, 5} {
			before := m
			acts := m.Step(Event{Kind: kind, Epoch: epoch})
			if len(acts) != 0 || m != before {
				t.Errorf("event %d of epoch %d while idle: %v", kind, epoch, acts)
			}
		}
	}
	m := New(5)
	for _, epoch := range []uint32{0, 5, 1 << 31, 1<<32 - 1} {
		acts := m.Step(Event{Kind: Propose, Epoch: epoch, Nonce: 1})
		if len(acts) != 1 || acts[0].Act != SendRefuse || acts[0].Reason != ReasonBusy {
			t.Errorf("proposal of epoch %d: %v", epoch, acts)
		}
	}
	m.Step(Event{Kind: Open, Nonce: 1})
	if acts := m.Step(Event{Kind: Commit, Epoch: 6}); acts != nil {
		t.Errorf("commit to an opener: %v", acts)
	}
}
