package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// A usage is what this process has used of the machine until some moment.
type usage struct {
	at   time.Time
	used unix.Rusage
}

func usageNow() usage {
	u := usage{at: time.Now()}
	unix.Getrusage(unix.RUSAGE_SELF, &u.used) // cannot fail for this process
	return u
}

// since adds to m what was used since old: the processors' share, 1 for a whole one, and
// how often a second a thread was woken up, which each completion event does.
func (u usage) since(old usage, m map[string]float64) {
	took := u.at.Sub(old.at)
	cpu := func(r *unix.Rusage) int64 { return r.Utime.Nano() + r.Stime.Nano() }
	m[metricCPU] = float64(cpu(&u.used)-cpu(&old.used)) / float64(took.Nanoseconds())
	m[metricWakes] = float64(u.used.Nvcsw-old.used.Nvcsw) / took.Seconds()
}
