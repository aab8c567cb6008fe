package raw

import (
	"errors"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs"
)

// Costs are what the binding itself costs on a device, without a message.
type Costs struct {
	Call time.Duration // one call that polls an empty completion queue once
	Poll time.Duration // each further poll within a call
}

// Measure finds the costs; each is the least of many means, so that what else the
// machine does stays out.
func Measure(p verbs.Provider, device string) (_ Costs, err error) {
	dev, err := p.Open(device)
	if err != nil {
		return Costs{}, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	cq, err := dev.NewCQ(16, nil, 0)
	if err != nil {
		return Costs{}, err
	}
	defer func() { err = errors.Join(err, cq.Close()) }()
	const calls, polls, tries = 200, 200, 50
	var wc [16]verbs.WC
	mean := func(n, polls int) (time.Duration, error) {
		var least time.Duration
		for range tries {
			start := time.Now()
			for range n {
				if _, err := cq.Spin(wc[:], polls); err != nil {
					return 0, err
				}
			}
			if took := time.Since(start) / time.Duration(n); least == 0 || took < least {
				least = took
			}
		}
		return least, nil
	}
	once, err := mean(calls, 1)
	if err != nil {
		return Costs{}, err
	}
	many, err := mean(calls/polls+1, polls+1)
	return Costs{once, max(0, many-once) / polls}, err
}
