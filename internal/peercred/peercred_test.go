package peercred

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestOf(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	there, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	here, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for name, conn := range map[string]net.Conn{"who listens": there, "who connected": here} {
		if c, err := Of(conn); err != nil || int(c.Pid) != os.Getpid() || int(c.Uid) != os.Geteuid() || int(c.Gid) != os.Getegid() {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	if err := errors.Join(here.Close(), there.Close()); err != nil {
		t.Fatal(err)
	}
	if c, err := Of(here); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %+v, %v", c, err)
	}
	in, out := net.Pipe()
	defer in.Close()
	defer out.Close()
	if c, err := Of(in); err == nil {
		t.Errorf("no socket: %+v", c)
	}
}
