package reconcile

import (
	"context"
	"time"
)

// negotiation bounds the wait for irqbalance, which answers between two of its rounds.
const negotiation = 30 * time.Second

// A table is where irqbalance is negotiated with, beside the loop: it may take longer to
// answer than a heal may wait.
type table struct {
	offers chan []int // the latest
	left   chan struct{}
}

func newTable() *table { return &table{offers: make(chan []int, 1), left: make(chan struct{})} }

// offer gives the interrupts that are to be left alone; an offer that nobody has taken yet
// is replaced. One goroutine at a time calls it.
func (t *table) offer(irqs []int) {
	select {
	case <-t.offers:
	default:
	}
	t.offers <- irqs
}

// sit negotiates about every offer until ctx ends.
func (l *Loop) sit(ctx context.Context) {
	defer close(l.table.left)
	for {
		select {
		case <-ctx.Done():
			return
		case irqs := <-l.table.offers:
			l.negotiate(ctx, irqs)
		}
	}
}

func (l *Loop) negotiate(ctx context.Context, irqs []int) {
	ctx, cancel := context.WithTimeout(ctx, negotiation)
	defer cancel()
	said, err := l.c.Negotiate(ctx, irqs)
	if ctx.Err() != nil && err != nil {
		return // stopping, or no answer in time: the next offer tries again
	}
	news := false
	l.update(func(s *Status) {
		news = s.Irqbalance != said
		s.Irqbalance, s.IrqbalanceAgreed = said, err == nil
	})
	if news {
		l.log.Info("irqbalance", "agreement", said)
	}
}
