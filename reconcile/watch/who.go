package watch

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/printable"
)

// Bounds on what is kept of a process's name and command line.
const (
	maxComm    = 64
	maxCommand = 256
)

// comm returns the name of a process, printable; "" when it is gone.
func comm(pid int) string {
	var buf [maxComm]byte
	return printable.Line(string(bytes.TrimSuffix(slurp(pid, "comm", buf[:]), []byte("\n"))))
}

// command returns the command line of a process in one printable line; "" when it is gone
// or has none, as the kernel's threads.
func command(pid int) string {
	var buf [maxCommand + 1]byte
	b := bytes.TrimRight(slurp(pid, "cmdline", buf[:]), "\x00")
	return printable.Clip(string(bytes.ReplaceAll(b, []byte{0}, []byte(" "))), maxCommand)
}

// slurp reads the start of a file of a process into buf.
func slurp(pid int, name string, buf []byte) []byte {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}
