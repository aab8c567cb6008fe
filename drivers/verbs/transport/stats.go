package transport

import (
	"math/bits"
	"time"

	"github.com/rdmatune/rdmatune/drivers/verbs/control"
)

// A tier is how a message travels.
type tier uint8

const (
	tierInline     tier = iota // copied into the work request
	tierEager                  // copied into registered buffers at both ends
	tierRendezvous             // written from the sender's memory into the receiver's
	tiers
)

// String is the tier's name on the control socket.
func (t tier) String() string { return [...]string{"inline", "eager", "rendezvous"}[t] }

const (
	sizeBins = 32 // bin k: sizes of k bits
	// Bins of time have a quarter of a power of two of nanoseconds each, from
	// 2^timeFirst on; what is shorter is in the first and what is longer in the last.
	timeFirst = 7
	timeLast  = 34
	timeBins  = (timeLast - timeFirst + 1) * 4
	// sampleEvery is the share of copied messages that is timed, of those whose
	// completion is signaled: reading the clock for each would show in what it measures.
	sampleEvery = 16
)

// traffic counts messages of one direction.
type traffic struct {
	messages, bytes, copied [tiers]uint64
	sizes                   [sizeBins]uint64
	times                   [tiers][timeBins]uint64
}

// count counts a message; copied says that the CPU copied it at this end.
func (t *traffic) count(k tier, size int) {
	t.messages[k]++
	t.bytes[k] += uint64(size)
	if k != tierRendezvous {
		t.copied[k] += uint64(size)
	}
	t.sizes[bits.Len32(uint32(size))]++
}

// time counts a time from post to completion.
func (t *traffic) time(k tier, d time.Duration) {
	t.times[k][timeBin(d)]++
}

// timeBin returns the bin of d.
func timeBin(d time.Duration) int {
	if d < 1<<timeFirst {
		return 0
	}
	e := bits.Len64(uint64(d)) - 1
	if e > timeLast {
		return timeBins - 1
	}
	return (e-timeFirst)*4 + int(uint64(d)>>(e-2)&3)
}

// binStart is the shortest time of bin i.
func binStart(i int) time.Duration {
	if i == 0 {
		return 0
	}
	e := timeFirst + i/4
	return time.Duration(uint64(4+i%4) << (e - 2))
}

// describe returns t as the control socket shows it.
func (t *traffic) describe() control.Traffic {
	out := control.Traffic{
		Inline: t.messages[tierInline], Eager: t.messages[tierEager], Rendezvous: t.messages[tierRendezvous],
		Tiers: make([]control.Tier, tiers), Sizes: []control.Bin{},
	}
	for k := range tiers {
		out.Messages += t.messages[k]
		out.Bytes += t.bytes[k]
		s := control.Tier{Name: k.String(), Messages: t.messages[k], Bytes: t.bytes[k], Copied: t.copied[k], Times: []control.Bin{}}
		for i, n := range t.times[k] {
			if n > 0 {
				s.Times = append(s.Times, control.Bin{From: int64(binStart(i)), Count: n})
			}
		}
		out.Tiers[k] = s
	}
	for i, n := range t.sizes {
		if n > 0 {
			out.Sizes = append(out.Sizes, control.Bin{From: int64(1) << i >> 1, Count: n})
		}
	}
	return out
}
