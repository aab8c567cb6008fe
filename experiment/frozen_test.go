package experiment

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// frozenPlace makes the test binary a process with mounts of its own.
const frozenPlace = "EXPERIMENT_TEST_MOUNTS"

// copyOf copies the files of a database that are there, but for those named.
func copyOf(t *testing.T, from, to string, without ...string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		b, err := os.ReadFile(filepath.Join(from, fileName+suffix))
		if errors.Is(err, fs.ErrNotExist) || len(without) > 0 && without[0] == suffix {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, fileName+suffix), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// fill leaves no byte free on dir's file system.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, n := range []int{1 << 16, 1} {
		for err == nil {
			_, err = f.Write(make([]byte, n))
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		err = nil
	}
}

// TestNothingCanBeWritten reads databases on a full and on a read-only file system, after
// an orderly end of the writer, after a crash, with and without the log's index, and as an
// older version wrote them.
func TestNothingCanBeWritten(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("mounting needs root: run the tests as root")
	}
	if os.Getenv(frozenPlace) == "" {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestNothingCanBeWritten$", "-test.v")
		cmd.Env = append(os.Environ(), frozenPlace+"=yes")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestNothingCanBeWritten/")) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	clean, crashed, old := t.TempDir(), t.TempDir(), t.TempDir()
	want := []Experiment{sample("one", time.Unix(1, 0).UTC()), sample("two", time.Unix(2, 0).UTC())}
	write := func(dir string, list ...Experiment) *DB {
		db, err := Open(t.Context(), dir)
		for _, e := range list {
			if err == nil {
				err = db.Finish(t.Context(), e)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	if err := write(clean, want...).Close(); err != nil {
		t.Fatal(err)
	}
	if err := write(crashed, want[0]).Close(); err != nil {
		t.Fatal(err)
	}
	db := write(crashed, want[1]) // in the log only, until it is closed
	defer db.Close()
	if st, err := os.Stat(filepath.Join(crashed, fileName+"-wal")); err != nil || st.Size() == 0 {
		t.Fatalf("the log: %v", err)
	}
	first, err := open(t.Context(), old, "rwc")
	for _, q := range []string{migrations[0], "PRAGMA user_version = 1"} {
		if err == nil {
			_, err = first.sql.ExecContext(t.Context(), q)
		}
	}
	if err := errors.Join(err, first.Close()); err != nil {
		t.Fatal(err)
	}
	for name, place := range map[string]func(t *testing.T, dir string){
		"full":      fill,
		"read-only": func(t *testing.T, dir string) { check(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")) },
		"bound read-only": func(t *testing.T, dir string) {
			check(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
		},
	} {
		for _, c := range []struct {
			name, from string
			without    []string
			want       []Experiment
		}{
			{"after its end", clean, nil, want},
			{"after a crash", crashed, nil, want},
			{"after a crash, without the index", crashed, []string{"-shm"}, want},
			{"of an older version", old, nil, nil},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				dir := t.TempDir()
				check(t, unix.Mount("none", dir, "tmpfs", 0, "size=1m"))
				defer func() { check(t, unix.Unmount(dir, 0)) }()
				copyOf(t, c.from, dir, c.without...)
				place(t, dir)
				if err := os.WriteFile(filepath.Join(dir, "x"), make([]byte, 1<<16), 0o600); err == nil {
					t.Fatal("something can be written there")
				}
				db, err := OpenReadOnly(t.Context(), dir)
				if err != nil || db == nil {
					t.Fatalf("%v, %v", db, err)
				}
				list, err := db.List(t.Context(), Filter{})
				if err != nil || len(list) != len(c.want) {
					t.Fatalf("%d experiments, %v", len(list), err)
				}
				for _, e := range c.want {
					got, err := db.Show(t.Context(), e.ID)
					if diff := cmp.Diff(e, got); err != nil || diff != "" {
						t.Errorf("%v (-want +got)\n%s", err, diff)
					}
				}
				check(t, db.Close())
			})
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// logged returns a database and its log, with a transaction that the database lacks.
func logged(t *testing.T) (image, wal []byte) {
	t.Helper()
	dir := t.TempDir()
	db, err := Open(t.Context(), dir)
	if err == nil {
		err = db.Finish(t.Context(), sample("one", time.Unix(1, 0)))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if image, err = os.ReadFile(filepath.Join(dir, fileName)); err != nil {
		t.Fatal(err)
	}
	if wal, err = os.ReadFile(filepath.Join(dir, fileName+"-wal")); err != nil {
		t.Fatal(err)
	}
	return image, wal
}

// TestTornLog cuts and damages a log: what is read is a database of whole transactions.
func TestTornLog(t *testing.T) {
	image, wal := logged(t)
	ids := func(t *testing.T, wal []byte) int {
		dir := t.TempDir()
		check(t, os.WriteFile(filepath.Join(dir, fileName), image, 0o600))
		check(t, os.WriteFile(filepath.Join(dir, fileName+"-wal"), wal, 0o600))
		db, err := openFrozen(t.Context(), dir)
		check(t, err)
		defer db.Close()
		list, err := db.List(t.Context(), Filter{})
		check(t, err)
		return len(list)
	}
	if n := ids(t, wal); n != 1 {
		t.Errorf("whole: %d experiments", n)
	}
	for _, cut := range []int{0, 10, 32, len(wal) / 2, len(wal) - 1} {
		t.Run(fmt.Sprint("cut at ", cut), func(t *testing.T) {
			if n := ids(t, wal[:cut]); n != 0 {
				t.Errorf("%d experiments", n)
			}
		})
	}
	for _, at := range []int{1, 17, 30, 41, 532, len(wal) - 1} {
		t.Run(fmt.Sprint("damaged at ", at), func(t *testing.T) {
			torn := bytes.Clone(wal)
			torn[at] ^= 0x40
			if n := ids(t, torn); n != 0 {
				t.Errorf("%d experiments", n)
			}
		})
	}
}

// TestSpecialFiles: what is no file is refused at once.
func TestSpecialFiles(t *testing.T) {
	for _, name := range []string{fileName, fileName + "-wal"} {
		for kind, make := range map[string]func(path string) error{
			"pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
			"directory": func(path string) error { return os.Mkdir(path, 0o700) },
			"device":    func(path string) error { return os.Symlink("/dev/zero", path) },
		} {
			dir := t.TempDir()
			db := filepath.Join(dir, fileName)
			if err := errors.Join(os.WriteFile(db, nil, 0o600), os.RemoveAll(filepath.Join(dir, name)), make(filepath.Join(dir, name))); err != nil {
				t.Fatal(err)
			}
			if _, err := readImage(db); err == nil || !strings.Contains(err.Error(), kind+", not a regular file") {
				t.Errorf("%s as %s: %v", kind, name, err)
			}
			if name != fileName {
				continue
			}
			if db, err := OpenReadOnly(t.Context(), dir); err == nil {
				t.Errorf("%s as %s: opened: %v", kind, name, db)
			}
		}
	}
}
