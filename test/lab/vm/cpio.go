package vm

import (
	"fmt"
	"io"
	"path"
	"strings"
)

// A cpio writes an archive in the "newc" format that the kernel unpacks as its
// initial file system (Documentation/driver-api/early-userspace/buffer-format.rst).
// Everything belongs to root. Missing parent directories are added.
type cpio struct {
	w    io.Writer
	at   int64
	ino  int
	seen map[string]bool
	err  error // the first error; later calls do nothing
}

// File types of the mode field.
const (
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
	typeChar = 0o020000
)

func newCpio(w io.Writer) *cpio { return &cpio{w: w, seen: map[string]bool{}} }

// File adds a file at the absolute path name. A second file of that name is ignored:
// shared libraries come up often.
func (c *cpio) File(name string, perm uint32, body []byte) {
	c.add(name, typeFile|perm&0o7777, 0, 0, body)
}

// Dir adds a directory.
func (c *cpio) Dir(name string) { c.add(name, typeDir|0o755, 0, 0, nil) }

// Link adds a symbolic link.
func (c *cpio) Link(name, target string) { c.add(name, typeLink|0o777, 0, 0, []byte(target)) }

// Char adds a character device.
func (c *cpio) Char(name string, major, minor uint32) {
	c.add(name, typeChar|0o600, major, minor, nil)
}

// Close ends the archive and returns the first error of any call.
func (c *cpio) Close() error {
	c.record("TRAILER!!!", 0, 0, 0, nil)
	return c.err
}

func (c *cpio) add(name string, mode, major, minor uint32, body []byte) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" || c.seen[name] {
		return
	}
	if dir := path.Dir(name); dir != "." {
		c.Dir(dir)
	}
	c.seen[name] = true
	c.record(name, mode, major, minor, body)
}

// record writes a header of thirteen eight-digit hexadecimal fields, the name and
// the body, each padded to four bytes.
func (c *cpio) record(name string, mode, major, minor uint32, body []byte) {
	if int64(len(body)) > 1<<32-1 {
		c.err = fmt.Errorf("%s: too large for a newc archive", name)
	}
	c.ino++
	c.write(fmt.Appendf(nil, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		c.ino, mode, 0, 0, 1, 0, len(body), 0, 0, major, minor, len(name)+1, 0, name))
	c.write(body)
}

func (c *cpio) write(p []byte) {
	if c.err != nil {
		return
	}
	if _, c.err = c.w.Write(p); c.err != nil {
		return
	}
	c.at += int64(len(p))
	pad := make([]byte, -c.at&3)
	_, c.err = c.w.Write(pad)
	c.at += int64(len(pad))
}
