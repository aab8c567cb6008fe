package soak

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// setUp makes the test's files and learns the machine.
func (s *soak) setUp(ctx context.Context) {
	dir := s.t.TempDir()
	w := &world{dir: dir, specPath: filepath.Join(dir, "spec", "node.hcl"), stateDir: filepath.Join(dir, "state"), logPath: filepath.Join(dir, "daemon.log"),
		down: map[string]bool{}, processes: map[int]*process{}, beliefs: map[setting]*belief{}, hits: map[string][]time.Time{},
		defaults: map[bool]map[setting]string{false: {}, true: {}}, spec: canonical()}
	s.w = w
	check := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	out, err := os.Create(filepath.Join(os.Getenv(outVar), "history"))
	check(err)
	s.out = out
	check(os.Mkdir(filepath.Dir(w.specPath), 0o700))
	check(os.Mkdir(w.stateDir, 0o700))
	check(unix.Mount("soak", w.stateDir, "tmpfs", 0, "size=96m"))
	s.t.Cleanup(func() {
		s.keep()
		if w.d != nil {
			_ = w.d.signal(syscall.SIGKILL) // after a failure
			<-w.d.ended
		}
		if w.adversary != nil {
			_ = w.adversary.Process.Kill() // after a failure
		}
		for pid := range maps.Clone(w.processes) {
			if err := w.kill(pid); err != nil {
				s.t.Error(err)
			}
		}
		if err := unix.Unmount(w.stateDir, unix.MNT_DETACH); err != nil {
			s.t.Error(err)
		}
	})
	sleep, err := exec.LookPath("sleep")
	check(err)
	program, err := os.ReadFile(sleep)
	check(err)
	for _, comm := range []string{"trainer", "server", "other"} {
		check(os.WriteFile(filepath.Join(dir, comm), program, 0o700))
	}
	_, err = s.edit(w.spec, true)
	check(err)
	w.k, err = newKernel()
	check(err)
	// What a driver that is bound anew leaves depends on which CPUs there are.
	for _, offline := range []bool{true, false} {
		w.beliefs = map[setting]*belief{}
		for _, x := range machineSettings() {
			w.beliefs[x] = &belief{base: map[string]bool{}, pending: map[string]bool{}}
		}
		steps := []func(context.Context, *soak) (string, error){unbind, bind}
		if offline {
			steps = slices.Insert(steps, 0, cpuOff)
			steps = append(steps, cpuOn)
		}
		for i, step := range steps {
			_, err := step(ctx, s)
			check(err)
			if i == len(steps)-1 || !offline {
				continue
			}
			for x := range w.beliefs {
				w.defaults[offline][x] = w.k.read(x)
			}
		}
	}
	for x, b := range w.beliefs {
		value := w.k.read(x)
		w.defaults[false][x], b.base = value, map[string]bool{value: true}
		s.t.Logf("%s: %q, without CPU 3 %q", x, value, w.defaults[true][x])
	}
}
