package audit

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestSymbol: a library that exports the hint's function, one that keeps it to itself,
// one that calls another's, one without, and DeepEP's function of that name.
func TestSymbol(t *testing.T) {
	const fn = "int get_low_latency_rdma_size_hint(void)"
	for name, tc := range map[string]struct{ source, symbol, note string }{
		"exported": {fn + " { return 7; }", symbolExported, ""},
		"local":    {"__attribute__((visibility(\"hidden\"))) " + fn + " { return 7; } int (*keep(void))(void) { return get_low_latency_rdma_size_hint; }", symbolLocal, "a program cannot call it"},
		"calls":    {fn + "; int f(void) { return get_low_latency_rdma_size_hint(); }", symbolAbsent, "it calls the function of another library"},
		"absent":   {"int f(void) { return 0; }", symbolAbsent, ""},
		"deepep":   {"int _ZN7deep_ep6legacy30get_low_latency_rdma_size_hintEiiii(int a) { return a; }", symbolAbsent, "DeepEP's function of that name is another thing: a buffer size in bytes, no threshold"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			source, lib := filepath.Join(dir, "x.c"), filepath.Join(dir, "x.so")
			if err := os.WriteFile(source, []byte(tc.source), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), "gcc", "-shared", "-fPIC", "-o", lib, source).CombinedOutput(); err != nil {
				t.Fatalf("gcc: %v\n%s", err, out)
			}
			f, err := os.Open(lib)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			symbol, note, err := lookUp(f)
			if err != nil || symbol != tc.symbol || note != tc.note {
				t.Errorf("%s, %q, %v; want %s, %q", symbol, note, err, tc.symbol, tc.note)
			}
		})
	}
}

func FuzzLookUp(f *testing.F) {
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if symbol, _, err := lookUp(bytes.NewReader(b)); err == nil && symbol == "" {
			t.Error("neither a result nor an error")
		}
	})
}

func FuzzFiles(f *testing.F) {
	f.Add("A=1\n[x]\nB=2")
	f.Add(" A = \"1\" # c\n=\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, read := range []func(string) map[string]string{readINI, readNCCL, readMCA, readFabric, readNVSHMEM} {
			if n := len(read(text)); n > len(text) {
				t.Errorf("%d names of %d bytes", n, len(text))
			}
		}
		_ = writtenBy(text)
	})
}
