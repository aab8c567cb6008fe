package irqbalance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/google/renameio/v2"

	"github.com/rdmatune/rdmatune/internal/smallfile"
)

// An Agreement is how things stand with irqbalance.
type Agreement struct {
	Daemon string // "irqbalance 1.9.2 (pid 712)", "" when none runs
	// Asked are the interrupts that it is to leave alone for us, Held how many of them it
	// was told of: fewer where its version has no room for more.
	Asked, Held int
	// Others is how many interrupts it leaves alone for others.
	Others int
	// Verified says that its own list was read and has what Held counts. If not, its
	// version cannot be asked.
	Verified bool
	// Err is why it could not be agreed with, or why Held is less than Asked; nil for neither.
	Err error
}

// Agreed reports whether nothing is left that irqbalance might move: none runs, or it was
// told of all interrupts.
func (a Agreement) Agreed() bool { return a.Err == nil }

// String says it to a person, in one line.
func (a Agreement) String() string {
	switch {
	case a.Daemon == "" && a.Err == nil:
		return "none runs"
	case a.Daemon == "":
		return "not agreed: " + a.Err.Error()
	}
	s := fmt.Sprintf("%s leaves %d of our interrupts alone", a.Daemon, a.Held)
	if !a.Verified {
		s = fmt.Sprintf("%s was told to leave %d of our interrupts alone, not verifiable", a.Daemon, a.Held)
	}
	if a.Others > 0 {
		s += fmt.Sprintf(", and %d for others", a.Others)
	}
	if a.Err != nil {
		s += ": " + a.Err.Error()
	}
	return s
}

// A Keeper keeps irqbalance from moving a set of interrupts, across restarts of either
// side. It remembers in a file which of the daemon's bans are its own.
type Keeper struct {
	place place
	file  string

	mu     sync.Mutex
	client *Client   // guarded by mu; of the daemon that was found last
	last   Agreement // guarded by mu
}

// NewKeeper returns a keeper that looks for the daemon below the machine's runDir (/run)
// and remembers in dir, which does not outlive a boot: rdmatune's run directory.
func NewKeeper(runDir, dir string) *Keeper {
	return &Keeper{place: machine(runDir), file: filepath.Join(dir, "irqbalance.json")}
}

// Keep makes irqs the interrupts that irqbalance leaves alone for us: what it is not told of
// yet is added, what we do not need any more is taken off. It is cheap where nothing
// changed, and may wait as long as ctx allows, at most half a minute, for a daemon that
// sleeps. It is called again and again: a daemon that was started anew knows of nothing.
func (k *Keeper) Keep(ctx context.Context, irqs []int) Agreement {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = k.keep(ctx, unique(slices.Clone(irqs)))
	return k.last
}

// Release takes all of ours off the daemon's list again.
func (k *Keeper) Release(ctx context.Context) error { return k.Keep(ctx, nil).Err }

// Wait waits until irqbalance has answered whatever it was asked. A process calls it before
// it ends, since an answer to nobody ends irqbalance. That takes a moment; before version
// 1.9.4 it may be irqbalance's interval, 10 s unless it was told otherwise.
func (k *Keeper) Wait(ctx context.Context) error { return k.place.pending.wait(ctx) }

// Agreed is the outcome of the last Keep or Release.
func (k *Keeper) Agreed() Agreement {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

func (k *Keeper) keep(ctx context.Context, irqs []int) Agreement {
	a := Agreement{Asked: len(irqs)}
	c, err := k.daemon(ctx)
	if errors.Is(err, ErrNone) {
		return Agreement{}
	}
	if err != nil {
		a.Err = err
		return a
	}
	a.Daemon, a.Verified = c.String(), c.Verifiable()
	mine, err := recall(k.file, c.identity())
	if err != nil {
		a.Err = err
		return a
	}
	if len(irqs) == 0 && len(mine) == 0 {
		return a
	}
	if !c.Verifiable() && slices.Equal(irqs, mine) {
		a.Held = len(irqs)
		return a
	}
	now, err := c.Banned(ctx)
	if err != nil {
		a.Err = err
		return a
	}
	others := without(now, mine)
	a.Others = len(others)
	// It is written down before the daemon is told: a kill in between must not turn our
	// bans into somebody else's.
	if a.Err = k.remember(c, mine, union(mine, without(irqs, others))); a.Err != nil {
		return a
	}
	added, err := c.change(ctx, now, mine, irqs)
	a.Err = err
	if _, limited := errors.AsType[*LimitError](err); err != nil && !limited {
		return a // what is written down is more than what is ours; the next call mends that
	}
	a.Held = len(added) + len(irqs) - len(without(irqs, others))
	a.Err = errors.Join(a.Err, k.remember(c, union(mine, without(irqs, others)), added))
	return a
}

// daemon returns a client of the daemon, which is looked for only when it is not the one
// of the last call. The caller holds mu.
func (k *Keeper) daemon(ctx context.Context) (*Client, error) {
	if k.client != nil && k.client.still() {
		return k.client, nil
	}
	c, err := k.place.find(ctx)
	k.client = c
	return c, err
}

// A record is the content of the keeper's file.
type record struct {
	Daemon string `json:"daemon"` // which it was told to: PID@START
	IRQs   []int  `json:"irqs"`   // that it leaves alone because of us
}

// maxRecord bounds the file.
const maxRecord = 1 << 20

// recall returns what of the daemon's bans is ours: nothing of another daemon than this.
func recall(file, daemon string) ([]int, error) {
	b, err := smallfile.Read(file, maxRecord, smallfile.Trusted)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil || r.Daemon != daemon {
		return nil, nil // of another daemon, or of nobody: it tells nothing of this one
	}
	return unique(slices.DeleteFunc(r.IRQs, func(n int) bool { return n < 0 })), nil
}

// remember writes down that irqs are ours, unless it says so already.
func (k *Keeper) remember(c *Client, was, irqs []int) error {
	if slices.Equal(was, irqs) {
		return nil
	}
	b, err := json.Marshal(record{Daemon: c.identity(), IRQs: irqs})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(k.file), 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(k.file, append(b, '\n'), 0o644, renameio.WithTempDir(filepath.Dir(k.file)))
}
