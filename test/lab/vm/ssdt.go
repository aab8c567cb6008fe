package vm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/rdmatune/rdmatune/test/lab/internal/proto"
)

// Frequencies are the P-states of each CPU, in kHz: state N has Frequencies[N].
var Frequencies = []int{3_000_000, 2_600_000, 2_200_000, 1_800_000, 1_200_000}

// ssdt returns the ASL source of a table that gives each CPU of QEMU's q35 the
// objects of the ACPI specification, section 8.4.5 (Processor Performance Control):
// the states, a control port of its own, no limit by the platform, and a clock
// domain of its own. The port is plain I/O because emulation has no SpeedStep MSRs.
func ssdt() string {
	var b strings.Builder
	b.WriteString("DefinitionBlock (\"\", \"SSDT\", 2, \"RDMATN\", \"CPUFREQ\", 1)\n{\n")
	for cpu := range proto.CPUs {
		fmt.Fprintf(&b, "  External (\\_SB.CPUS.C%03X, ProcessorObj)\n", cpu)
	}
	for cpu := range proto.CPUs {
		register := fmt.Sprintf("ResourceTemplate () { Register (SystemIO, 8, 0, %#x) }", proto.PStatePort+cpu)
		fmt.Fprintf(&b, "  Scope (\\_SB.CPUS.C%03X)\n  {\n", cpu)
		fmt.Fprintf(&b, "    Name (_PCT, Package () { %s, %s })\n", register, register)
		b.WriteString("    Name (_PSS, Package () {\n")
		for state, kHz := range Frequencies {
			// MHz, milliwatts, transition and bus master latency in us, control, status.
			fmt.Fprintf(&b, "      Package () { %d, %d, 10, 10, %d, %d },\n", kHz/1000, kHz/40, state, state)
		}
		b.WriteString("    })\n    Name (_PPC, 0)\n")
		// Five entries, revision 0, this domain, coordinated by software, one CPU.
		fmt.Fprintf(&b, "    Name (_PSD, Package () { Package () { 5, 0, %d, 0xFC, 1 } })\n  }\n", cpu)
	}
	b.WriteString("}\n")
	return b.String()
}

// compileSSDT writes the table, in machine form, to path, which ends in .aml.
func compileSSDT(ctx context.Context, path string) error {
	base := strings.TrimSuffix(path, ".aml")
	if err := os.WriteFile(base+".asl", []byte(ssdt()), 0o644); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "iasl", "-p", base, base+".asl").CombinedOutput(); err != nil {
		return fmt.Errorf("iasl: %w: %s", err, out)
	}
	return nil
}

// quote doubles commas, which separate the parts of a QEMU option.
func quote(path string) string { return strings.ReplaceAll(path, ",", ",,") }
