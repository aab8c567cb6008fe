// Package proto is what the lab's host side and its guest agree on: places in the
// initial file system, port numbers, names and addresses.
package proto

// Places in the guest.
const (
	Dir     = "/lab"                     // the script's directory; extra files lie here too
	Script  = "/lab/script"              // run with dash
	Modules = "/lab/modules"             // kernel modules, one path a line, in load order
	Share   = "/out"                     // the host's results directory, also in $OUT
	Init    = "/init"                    // the guest's own program, also once systemd runs
	Systemd = "/usr/lib/systemd/systemd" // where it is there, it runs the machine
	Path    = "/usr/sbin:/usr/bin:/sbin:/bin"
)

// Mark is a word of the machine's kernel command line, by which the guest knows it.
const Mark = "rdmatune.lab"

// ShareTag names the 9p share of the results directory.
const ShareTag = "out"

// I/O ports of the machine. PStatePort+N is the P-state control port of CPU N, as
// the SSDT declares it; the host keeps every byte written to it. ExitPort takes the
// exit code as decimal text and a newline: a port of its own, since QEMU's
// isa-debug-exit could carry seven bits only.
const (
	PStatePort = 0x5a0
	ExitPort   = 0x5b0
)

// SetupFailed is the exit code when the guest could not start the script: the
// value that shells use for "cannot execute".
const SetupFailed = 126

// Ready opens the console line by which the guest says that it is up and that the
// script starts.
const Ready = "lab: ready"

// CPUs is the number of virtual CPUs: two NUMA nodes of two.
const CPUs = 4

// MACs and Addresses of the two wired cards: the first carries rxe0 and sits on
// NUMA node 0, the second carries rxe1 and sits on node 1.
var (
	MACs      = [2]string{"52:54:00:00:00:01", "52:54:00:00:00:02"}
	Addresses = [2]string{"10.77.0.1", "10.77.0.2"}
)
