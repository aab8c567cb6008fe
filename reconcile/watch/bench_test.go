package watch

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkChanged is a sweep over 4,000 files of interrupts, as on a node of 256 CPUs: the
// machine's own, reached again and again through its processes' roots.
func BenchmarkChanged(b *testing.B) {
	for _, c := range []struct{ name, pattern string }{
		{"procfs", "/proc/irq/*/smp_affinity*"},
		{"sysfs", "/sys/devices/system/cpu/cpu*/topology/*"},
	} {
		b.Run(c.name, func(b *testing.B) {
			const files = 4000
			paths := many(b, c.pattern, files)
			if len(paths) < files {
				b.Fatalf("%d files of %s; %d are needed", len(paths), c.pattern, files)
			}
			f := newFiles(true)
			defer func() { must(b, f.close()) }()
			must(b, f.Set(paths))
			must(b, f.Accept())
			b.ReportAllocs()
			before := spent(b)
			for b.Loop() {
				if _, err := f.Changed(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(spent(b)-before)/float64(b.N)/files, "cpu-ns/file")
		})
	}
}

// spent is the CPU time that the process has used so far, in nanoseconds: what counts on a
// machine that does something else too.
func spent(tb testing.TB) int64 {
	tb.Helper()
	var r unix.Rusage
	must(tb, unix.Getrusage(unix.RUSAGE_SELF, &r))
	return r.Utime.Nano() + r.Stime.Nano()
}

// many returns up to most paths of files of a pattern.
func many(b *testing.B, pattern string, most int) (paths []string) {
	b.Helper()
	found, err := filepath.Glob(pattern)
	must(b, err)
	roots, err := filepath.Glob("/proc/[0-9]*/root")
	must(b, err)
	tasks, err := filepath.Glob("/proc/[0-9]*/task/*/root")
	must(b, err)
	for _, root := range append(roots, tasks...) {
		if target, err := os.Readlink(root); err != nil || target != "/" {
			continue
		}
		for _, path := range found {
			if len(paths) < most {
				paths = append(paths, root+path)
			}
		}
	}
	return paths
}
