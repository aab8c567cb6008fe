package soak

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/rdmatune/rdmatune/spec"
)

func kill9(_ context.Context, s *soak) (string, error) {
	d := s.w.d
	pid := d.pid()
	if err := d.signal(syscall.SIGKILL); err != nil {
		return "", err
	}
	if err := d.wait(endTime); err != nil {
		return "", err
	}
	s.ended()
	return strconv.Itoa(pid), nil
}

// term stops the daemon, which leaves or restores the tuning, as the spec says.
func term(_ context.Context, s *soak) (string, error) {
	d, restores := s.w.d, s.w.spec.restore && !s.w.noSpec
	asserted := map[setting]bool{}
	for _, x := range s.w.settings() {
		asserted[x] = s.w.asserted(x)
	}
	if err := d.signal(syscall.SIGTERM); err != nil {
		return "", err
	}
	if err := d.wait(endTime); err != nil {
		return "", err
	}
	if d.err != nil && !(restores && s.w.blocked()) {
		return "", fmt.Errorf("the daemon ended on SIGTERM: %w", d.err)
	}
	s.ended()
	if !restores {
		return "left", nil
	}
	for _, x := range s.w.settings() {
		b := s.w.beliefs[x]
		if !b.owned || x == "dma" {
			continue
		}
		if !asserted[x] {
			b.unsure = true
			continue
		}
		if got := s.w.k.read(x); !s.w.allowed(x, got) {
			return "", fmt.Errorf("restored: %s is %q, want one of %v", x, got, slices.Sorted(maps.Keys(b.base)))
		}
		maps.Copy(b.base, b.pending)
		clear(b.pending)
		b.owned, b.kept = false, true
	}
	return "restored", nil
}

// ended takes note that there is no daemon any more.
func (s *soak) ended() {
	s.spent += s.w.d.cpu
	s.w.d, s.w.stopped, s.w.noSpec = nil, false, false
}

// canStart: with an invalid spec and nothing managed the daemon refuses to start.
func (s *soak) canStart() bool { return !s.w.invalid || s.managed() > 0 }

func start(_ context.Context, s *soak) (string, error) {
	d, err := startDaemon(s.w.logPath, s.w.stateDir, s.w.specPath, s.done)
	if err != nil {
		return "", err
	}
	s.w.d, s.w.noSpec = d, s.w.invalid
	return strconv.Itoa(d.pid()), nil
}

// newSpec writes another spec, as editors do, or as a shell does.
func newSpec(_ context.Context, s *soak) (string, error) {
	return s.edit(randomVariant(s.r), s.r.IntN(2) == 0)
}

func (s *soak) edit(v variant, atomic bool) (string, error) {
	s.w.dropped()
	s.w.spec, s.w.invalid, s.w.noSpec, s.w.unsettled = v, false, false, true
	said := fmt.Sprintf("atomic %v: trainer %+v, server %+v, restore %v", atomic, v.trainer, v.server, v.restore)
	if err := s.writeSpec(v.text(), atomic); err != nil {
		return said, err
	}
	loaded, diags := spec.Load(s.w.specPath, spec.Options{})
	if diags.HasErrors() {
		return said, diags
	}
	s.w.digest = loaded.Digest
	return said, nil
}

func (s *soak) writeSpec(text string, atomic bool) error {
	if !atomic {
		return os.WriteFile(s.w.specPath, []byte(text), 0o600)
	}
	if err := os.WriteFile(s.w.specPath+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(s.w.specPath+".new", s.w.specPath)
}

func invalidSpec(_ context.Context, s *soak) (string, error) {
	s.w.invalid = true
	if s.r.IntN(4) == 0 {
		return "removed", os.Remove(s.w.specPath)
	}
	text := invalidText(s.r)
	return strconv.Quote(text), s.writeSpec(text, s.r.IntN(2) == 0)
}

func validSpec(_ context.Context, s *soak) (string, error) {
	s.w.invalid, s.w.noSpec = false, false
	return "", s.writeSpec(s.w.spec.text(), s.r.IntN(2) == 0)
}
