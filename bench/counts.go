package bench

// Counts are what an end found wrong with what it received. Each counts messages.
type Counts struct {
	Lost       uint64 `json:"lost"`       // numbers skipped and never seen later
	Duplicated uint64 `json:"duplicated"` // numbers seen before
	Reordered  uint64 `json:"reordered"`  // numbers seen after a higher one
	Corrupted  uint64 `json:"corrupted"`  // wrong checksum or size
}

// OK reports whether nothing was wrong.
func (c Counts) OK() bool { return c == Counts{} }

// Add returns the sum of c and d.
func (c Counts) Add(d Counts) Counts {
	return Counts{c.Lost + d.Lost, c.Duplicated + d.Duplicated, c.Reordered + d.Reordered, c.Corrupted + d.Corrupted}
}

// maxMissing bounds the numbers that an account remembers as skipped. One that comes
// late after that counts as duplicated and stays lost: wrong either way.
const maxMissing = 1 << 16

// An account judges the numbers of one direction, size by size.
type account struct {
	next    uint64         // the number expected
	missing map[uint64]int // skipped numbers, and the size whose count has them
	sizes   []Counts
	at      int // the size being received
}

func newAccount(sizes int) *account {
	return &account{missing: map[uint64]int{}, sizes: make([]Counts, sizes)}
}

// after returns the number that follows n; test messages leave controlMark out.
func after(n uint64) uint64 {
	if n++; uint32(n) == controlMark {
		n++
	}
	return n
}

// receive judges one undamaged message and reports whether it is a new one, which is
// answered, or waited for.
func (a *account) receive(number uint64) bool {
	if number < a.next {
		if size, skipped := a.missing[number]; skipped {
			delete(a.missing, number)
			a.sizes[size].Lost--
			a.sizes[a.at].Reordered++
		} else {
			a.sizes[a.at].Duplicated++
		}
		return false
	}
	a.skipTo(number)
	a.next = after(number)
	return true
}

// corrupted counts a damaged message in the place of the one expected.
func (a *account) corrupted() {
	a.sizes[a.at].Corrupted++
	a.next = after(a.next)
}

// skipTo counts the numbers from the one expected up to number, exclusively, as lost.
// The peer says where it stands before each change of size and at the end, which
// finds the losses that no later message shows.
func (a *account) skipTo(number uint64) {
	if number <= a.next {
		return
	}
	a.sizes[a.at].Lost += number - a.next
	for n := a.next; n < number && len(a.missing) < maxMissing; n++ {
		a.missing[n] = a.at
	}
	a.next = number
}
