package cpufreq_test

import (
	"io/fs"

	"github.com/rdmatune/rdmatune/internal/sysfs"
)

// check is an emulator that takes what the function takes.
type check func(v sysfs.View, name, value string) error

func (c check) Write(v sysfs.View, name string, _ fs.FileMode, value []byte) (string, []byte, error) {
	return name, value, c(v, name, string(value))
}

func (check) Read(sysfs.View, string) ([]byte, bool, error) { return nil, false, nil }
