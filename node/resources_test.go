package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/fixture"
)

func TestResourcesAtRest(t *testing.T) {
	open := func(files ...txtar.File) *Node {
		files = append(files, txtar.File{Name: "sys/kernel/x", Data: []byte("1\n")})
		n, err := Open(fixture.Files(t, files...), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if _, err := open().Resources(t.Context()); !errors.Is(err, ErrNotObservable) {
		t.Errorf("without the file: %v", err)
	}
	got, err := open(txtar.File{Name: "rdma/resources.json", Data: []byte(`{"devices":[{"index":1,"name":"mlx5_0"}],"qps":[{"device":"mlx5_0","lqpn":18,"type":"R\u001bC","state":"RTS","tid":7}]}`)}).Resources(t.Context())
	if err != nil || len(got.QPs) != 1 || got.QPs[0].Type != "R?C" || got.QPs[0].TID != 7 || got.QPs[0].Number != 18 {
		t.Errorf("captured resources: %+v, %v", got, err)
	}
	if _, err := open(txtar.File{Name: "rdma/resources.json", Data: []byte(`{"qps":[{"lqpn":-1}]}`)}).Resources(t.Context()); err == nil {
		t.Error("a negative queue pair number is taken")
	}
}

func TestReadFor(t *testing.T) {
	n, err := Open("local", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	conf := filepath.Join(dir, "nccl.conf")
	if err := os.WriteFile(conf, []byte("NCCL_PROTO=LL\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{0, os.Getpid()} {
		if b, err := n.ReadFor(pid, conf); err != nil || string(b) != "NCCL_PROTO=LL\n" {
			t.Errorf("as process %d sees it: %q, %v", pid, b, err)
		}
	}
	if _, err := n.ReadFor(os.Getpid(), conf+".none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := n.ReadFor(0, dir); err == nil {
		t.Error("a directory was read")
	}
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := n.ReadFor(0, pipe); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a pipe: %v", err)
	}
	if err := os.Truncate(conf, MaxConfig+1); err != nil {
		t.Fatal(err)
	}
	if _, err := n.ReadFor(0, conf); !errors.Is(err, unix.EFBIG) {
		t.Errorf("a large file: %v", err)
	}
}

// TestOpenMapped opens the program of this very test.
func TestOpenMapped(t *testing.T) {
	n, err := Open("local", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	maps, err := n.Procs().Mapped(os.Getpid())
	if err != nil || len(maps) == 0 {
		t.Fatalf("mapped files: %v, %v", maps, err)
	}
	f, err := n.OpenMapped(os.Getpid(), maps[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	magic := make([]byte, 4)
	if _, err := f.ReadAt(magic, 0); err != nil || string(magic) != "\x7fELF" {
		t.Errorf("%s starts with %q, %v", maps[0].Path, magic, err)
	}
}
