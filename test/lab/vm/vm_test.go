package vm

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCpio(t *testing.T) {
	var buf bytes.Buffer
	a := newCpio(&buf)
	a.File("/usr/bin/x", 0o755, []byte("hello"))
	a.File("usr/bin/x", 0o644, []byte("a second one is ignored"))
	a.Link("/bin/sh", "/usr/bin/dash")
	a.Char("/dev/console", 5, 1)
	a.Dir("/usr/bin/../lib")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"usr 40755 0,0 ", "usr/bin 40755 0,0 ", "usr/bin/x 100755 0,0 hello",
		"bin 40755 0,0 ", "bin/sh 120777 0,0 /usr/bin/dash",
		"dev 40755 0,0 ", "dev/console 20600 5,1 ", "usr/lib 40755 0,0 ", "TRAILER!!! 0 0,0 ",
	}
	if diff := cmp.Diff(want, readCpio(t, buf.Bytes())); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
}

// readCpio lists an archive by the format's description, not by the writer's code.
func readCpio(t *testing.T, b []byte) []string {
	t.Helper()
	var list []string
	align := func(n int) int { return (n + 3) / 4 * 4 }
	for at := 0; at < len(b); {
		field := func(i int) int {
			n, err := strconv.ParseInt(string(b[at+6+8*i:at+14+8*i]), 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		if string(b[at:at+6]) != "070701" {
			t.Fatalf("no magic at %d", at)
		}
		name := string(b[at+110 : at+110+field(11)-1])
		body := align(at + 110 + field(11))
		list = append(list, name+" "+strconv.FormatInt(int64(field(1)), 8)+" "+
			strconv.Itoa(field(9))+","+strconv.Itoa(field(10))+" "+string(b[body:body+field(6)]))
		at = align(body + field(6))
	}
	return list
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestCpioReportsTheFirstError(t *testing.T) {
	a := newCpio(failingWriter{})
	a.Dir("/x")
	if err := a.Close(); err == nil || err.Error() != "disk full" {
		t.Errorf("error %v, want disk full", err)
	}
}

func TestConsole(t *testing.T) {
	var live bytes.Buffer
	path := filepath.Join(t.TempDir(), "console.log")
	c, err := newConsole(path, Prefix(&live, "> "))
	if err != nil {
		t.Fatal(err)
	}
	ready := 0
	c.onReady = func() { ready++ }
	for _, part := range []string{"one\r\nlab: re", "ady 3 s\r\nlab: ready again\r\nun", "finished"} {
		if _, err := c.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if ready != 1 {
		t.Errorf("ready %d times, want once", ready)
	}
	if want := "> one\n> lab: ready 3 s\n> lab: ready again\n> unfinished\n"; live.String() != want {
		t.Errorf("live %q, want %q", live.String(), want)
	}
	if got, want := c.lastLines(2), "lab: ready again\nunfinished"; got != want {
		t.Errorf("last lines %q, want %q", got, want)
	}
	if b, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(b), "one\r\n") {
		t.Errorf("file %q, error %v", b, err)
	}
}

func TestConsoleIsBounded(t *testing.T) {
	c, err := newConsole(filepath.Join(t.TempDir(), "console.log"), nil)
	if err != nil {
		t.Fatal(err)
	}
	c.left = 10
	chunk := bytes.Repeat([]byte{'x'}, 1<<20)
	for range 5 {
		if _, err := c.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.tail) > 2*maxTail || len(c.Tail()) != maxTail || len(c.partial) >= maxLine+len(chunk) {
		t.Errorf("kept %d bytes, tail %d, line %d", len(c.tail), len(c.Tail()), len(c.partial))
	}
	if st, err := c.file.Stat(); err != nil || st.Size() != 10 {
		t.Errorf("file has %v, error %v; want 10 bytes", st, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestModuleOrder(t *testing.T) {
	tree := t.TempDir()
	for name, depends := range map[string]string{
		"net/a-top.ko": "b_mid,c-low", "net/b_mid.ko": "c_low", "lib/c-low.ko": "", "lib/other.ko": "",
	} {
		writeModule(t, filepath.Join(tree, name), depends)
	}
	got, err := moduleOrder(tree, []string{"built_in", "a_top", "b_mid"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i] = filepath.Base(got[i])
	}
	if want := []string{"c-low.ko", "b_mid.ko", "a-top.ko"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	if _, err := moduleOrder(t.TempDir(), nil); err == nil {
		t.Error("no error for a tree without modules")
	}
}

// writeModule writes the smallest ELF file with a .modinfo section: a header, a
// table of three sections, their names and the section itself.
func writeModule(t *testing.T, path, depends string) {
	t.Helper()
	names := "\x00.shstrtab\x00.modinfo\x00"
	info := "license=GPL\x00depends=" + depends + "\x00name=x\x00"
	const header, entry = 64, 64
	var b bytes.Buffer
	le := func(size int, v uint64) {
		for i := range size {
			b.WriteByte(byte(v >> (8 * i)))
		}
	}
	b.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9))
	le(2, 1)  // ET_REL
	le(2, 62) // x86-64
	le(4, 1)
	le(8, 0)
	le(8, 0)
	le(8, header) // section table
	le(4, 0)
	for _, v := range []uint64{header, 0, 0, entry, 3, 1} {
		le(2, v)
	}
	section := func(name, kind, offset, size uint64) {
		le(4, name)
		le(4, kind)
		le(8, 0)
		le(8, 0)
		le(8, offset)
		le(8, size)
		le(4, 0)
		le(4, 0)
		le(8, 1)
		le(8, 0)
	}
	at := uint64(header + 3*entry)
	section(0, 0, 0, 0)
	section(1, 3, at, uint64(len(names)))
	section(11, 1, at+uint64(len(names)), uint64(len(info)))
	b.WriteString(names + info)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestVmlinux(t *testing.T) {
	xz := func(text string) []byte {
		cmd := exec.Command("xz", "-c")
		cmd.Stdin = strings.NewReader(text)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	image := slices.Concat([]byte("boot code \xfd7zX"), xz("not a kernel"), []byte("padding"), xz("\x7fELFkernel"), []byte("trailing junk"))
	got, err := vmlinux(t.Context(), image)
	if err != nil || string(got) != "\x7fELFkernel" {
		t.Errorf("got %q, error %v", got, err)
	}
	if _, err := vmlinux(t.Context(), []byte("no stream")); err == nil {
		t.Error("no error for an image without a stream")
	}
}

func TestExitCode(t *testing.T) {
	for text, want := range map[string]int{"7\n": 7, "0\n": 0, "137\n": 137, "": -1, "7": -1, "x\n": -1} {
		m := machine{exitFile: filepath.Join(t.TempDir(), "exit")}
		if err := os.WriteFile(m.exitFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := m.exitCode()
		if want < 0 && !errors.Is(err, ErrNoExit) || want >= 0 && (err != nil || got != want) {
			t.Errorf("%q: code %d, error %v", text, got, err)
		}
	}
}

func TestLddPath(t *testing.T) {
	const out = "/usr/bin/dash:\n\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f00)\n" +
		"\t/lib64/ld-linux-x86-64.so.2 (0x00007f12)\n\tlibgone.so => not found\n"
	var got []string
	for _, m := range lddPath.FindAllStringSubmatch(out, -1) {
		got = append(got, m[1])
	}
	if want := []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestMachineArguments(t *testing.T) {
	m := machine{ssdt: "/tmp/a,b.aml", out: "/tmp/o,ut", exitFile: "/tmp/exit", initramfs: "/tmp/i"}
	args := strings.Join(m.args(), " ") + " "
	for _, want := range []string{
		"-acpitable file=/tmp/a,,b.aml", "path=/tmp/o,,ut/pstate/cpu3 ",
		"isa-debugcon,iobase=0x5a3,", "isa-debugcon,iobase=0x5b0,", "mac=52:54:00:00:00:02 ",
	} {
		if !strings.Contains(args, want) {
			t.Errorf("no %q in %s", want, args)
		}
	}
}

func TestSSDTHasEveryCPU(t *testing.T) {
	source := ssdt()
	for _, want := range []string{"C000", "C003", "0x5a3", "2200, 55000, 10, 10, 2, 2"} {
		if !strings.Contains(source, want) {
			t.Errorf("no %q in:\n%s", want, source)
		}
	}
}
