package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

// cgroup is where the daemon runs out of memory.
const cgroup = "/sys/fs/cgroup/soak"

// outOfMemory leaves the daemon no memory, so that the kernel kills it.
func outOfMemory(_ context.Context, s *soak) (string, error) {
	d := s.w.d
	pid := strconv.Itoa(d.pid())
	if err := os.Mkdir(cgroup, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+memory"), 0); err != nil {
		return "", err
	}
	before, err := oomKills()
	if err != nil {
		return "", err
	}
	for _, w := range []struct{ file, text string }{{"memory.max", "0"}, {"cgroup.procs", pid}} {
		if err := os.WriteFile(filepath.Join(cgroup, w.file), []byte(w.text), 0); err != nil {
			return "", err
		}
	}
	// What it allocated before is charged elsewhere: it is to need more.
	if err := d.signal(syscall.SIGHUP); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return "", err
	}
	if err := d.wait(patience); err != nil {
		return "", err
	}
	after, err := oomKills()
	if err == nil && after == before {
		err = fmt.Errorf("the daemon ended, and not for want of memory: %v", d.err)
	}
	s.ended()
	return pid, err
}

// oomKills is how many processes the kernel has killed in the daemon's cgroup.
func oomKills() (n int, err error) {
	b, err := os.ReadFile(cgroup + "/memory.events")
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strconv.Atoi(strings.TrimSpace(v))
		}
	}
	return 0, errors.Join(err, errors.New("memory.events has no oom_kill"))
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

// canStart: with an invalid spec the daemon goes on with the one that an earlier run kept;
// without any it refuses to start when nothing is managed. That it has an older one is not
// in the model.
func (s *soak) canStart() bool {
	if !s.w.invalid {
		return true
	}
	kept := s.keptSpec()
	return kept == s.w.digest || kept == "" && s.managed() > 0
}

// keptSpec is the digest of the spec of which the state directory has a copy, "" without.
func (s *soak) keptSpec() string {
	b, err := os.ReadFile(filepath.Join(s.w.stateDir, "lastgood.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	var c struct{ Digest string }
	if err := errors.Join(err, json.Unmarshal(b, &c)); err != nil {
		s.t.Fatal(err)
	}
	return c.Digest
}

func start(_ context.Context, s *soak) (string, error) {
	d, err := startDaemon(s.w.logPath, s.w.stateDir, s.w.specPath, s.done)
	if err != nil {
		return "", err
	}
	s.w.d, s.w.noSpec = d, s.w.invalid && s.keptSpec() == ""
	return strconv.Itoa(d.pid()), nil
}

// newSpec writes another spec, as editors do, or as a shell does.
func newSpec(_ context.Context, s *soak) (string, error) {
	return s.edit(randomVariant(s.r), s.r.IntN(2) == 0)
}

func (s *soak) edit(v variant, atomic bool) (string, error) {
	s.w.dropped()
	s.w.unseen()
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
