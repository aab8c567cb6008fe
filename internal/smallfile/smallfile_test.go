package smallfile

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const limit = 1 << 10

// wants are what the error says under each rule, "" where there is none.
type wants [Private + 1]string

// always is the same under every rule.
func always(text string) wants { return wants{text, text, text} }

// linked is of a link, which Any alone follows.
func linked(text string) wants {
	return wants{text, "a symbolic link, not a regular file", "a symbolic link, not a regular file"}
}

// holding makes a file.
func holding(content string, mode fs.FileMode, owner int) func(string) error {
	return func(path string) error {
		return errors.Join(os.WriteFile(path, []byte(content), 0o600), os.Chown(path, owner, -1), os.Chmod(path, mode))
	}
}

// linkTo makes a link.
func linkTo(target string) func(string) error {
	return func(path string) error { return os.Symlink(target, path) }
}

func socket(path string) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	return l.Close()
}

func TestRead(t *testing.T) {
	me := os.Geteuid()
	full := strings.Repeat("x", limit)
	target := filepath.Join(t.TempDir(), "target")
	if err := holding("text", 0o600, me)(target); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		make func(path string) error
		want wants
	}{
		"regular":            {holding("text", 0o600, me), wants{}},
		"empty":              {holding("", 0o600, me), wants{}},
		"at the limit":       {holding(full, 0o600, me), wants{}},
		"over the limit":     {holding(full+"x", 0o600, me), always("larger than 1 KiB")},
		"huge":               {func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40)) }, always("larger than 1 KiB")},
		"read by all":        {holding("text", 0o644, me), wants{"", "", "others may read or write it (mode 0644)"}},
		"written by a group": {holding("text", 0o620, me), wants{"", "others may write it (mode 0620)", "others may read or write it (mode 0620)"}},
		"written by all":     {holding("text", 0o602, me), wants{"", "others may write it (mode 0602)", "others may read or write it (mode 0602)"}},
		"a link":             {linkTo(target), linked("")},
		"a dangling link":    {linkTo("nowhere"), linked("a symbolic link to a file that is not there")},
		"a link to itself":   {linkTo("file"), linked("too many levels of symbolic links")},
		"a link to a device": {linkTo("/dev/zero"), linked("a device, not a regular file")},
		"a link to a pipe":   {func(path string) error { return errors.Join(unix.Mkfifo(path+"2", 0o600), os.Symlink(path+"2", path)) }, linked("a pipe, not a regular file")},
		"a pipe":             {func(path string) error { return unix.Mkfifo(path, 0o600) }, always("a pipe, not a regular file")},
		"a directory":        {func(path string) error { return os.Mkdir(path, 0o700) }, always("a directory, not a regular file")},
		"a socket":           {socket, always("a socket, not a regular file")},
		"missing":            {func(string) error { return nil }, always("no such file or directory")},
	}
	if me == 0 {
		tests["somebody's"] = struct {
			make func(path string) error
			want wants
		}{holding("text", 0o600, 12345), wants{"", "it belongs to user 12345, not to user 0", "it belongs to user 12345, not to user 0"}}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if err := test.make(path); err != nil {
				t.Fatal(err)
			}
			for rule, want := range test.want {
				b, err := Read(path, limit, Rule(rule))
				if want == "" {
					if content, readErr := os.ReadFile(path); err != nil || readErr != nil || string(b) != string(content) {
						t.Errorf("rule %d: %q, %v", rule, b, err)
					}
					continue
				}
				if err == nil || b != nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), path) != 1 {
					t.Errorf("rule %d: %q, %v; want %q", rule, b, err, want)
				}
			}
		})
	}
	if _, err := Read(os.DevNull, limit, Trusted); err == nil || err.Error() != "/dev/null: a device, not a regular file" {
		t.Errorf("a device: %v", err)
	}
}

// A file of procfs has no size, and is bounded all the same.
func TestWithoutSize(t *testing.T) {
	const name = "/proc/self/status"
	b, err := Read(name, 1<<20, Any)
	if err != nil || !strings.HasPrefix(string(b), "Name:") {
		t.Errorf("%.20q, %v", b, err)
	}
	if b, err := Read(name, 100, Any); err == nil || b != nil || err.Error() != name+": larger than 100 bytes" {
		t.Errorf("of 100 bytes: %q, %v", b, err)
	}
}

// A file that can be waited for, which a regular one on a disk cannot, is not waited for
// without end.
func TestPatience(t *testing.T) {
	defer func(usual time.Duration) { patience = usual }(patience)
	patience = -1
	if b, err := Read("/proc/self/mountinfo", 1<<20, Any); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := holding("text", 0o600, os.Geteuid())(path); err != nil {
		t.Fatal(err)
	}
	if b, err := Read(path, limit, Private); err != nil || string(b) != "text" {
		t.Errorf("on a disk: %q, %v", b, err)
	}
}

func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	err := errors.Join(os.WriteFile(path, []byte("text"), 0), os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		if os.Geteuid() == 0 {
			// Root may read everything, this thread no more. It ends with its goroutine.
			runtime.LockOSThread()
			if _, err := unix.SetfsuidRetUid(12345); err != nil {
				done <- err
				return
			}
		}
		_, err := Read(path, limit, Any)
		done <- err
	}()
	if err := <-done; !errors.Is(err, fs.ErrPermission) || strings.Count(err.Error(), path) != 1 {
		t.Error(err)
	}
}

// What was opened is read, whatever has its name by then.
func TestReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := holding("first", 0o600, os.Geteuid())(path); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path, Private)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(holding("second", 0o644, os.Geteuid())(path+"2"), os.Rename(path+"2", path)); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(f); err != nil || string(b) != "first" {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := Read(path, limit, Private); err == nil {
		t.Errorf("another's content: %q", b)
	}
}

func TestBytesOf(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 1: "1 bytes", 1000: "1000 bytes", 4 << 10: "4 KiB", 1500 << 10: "1500 KiB", 64 << 20: "64 MiB", 2 << 40: "2048 GiB"} {
		if got := bytesOf(n); got != want {
			t.Errorf("bytesOf(%d) = %q, want %q", n, got, want)
		}
	}
}
