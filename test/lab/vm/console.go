package vm

import (
	"bytes"
	"io"
	"os"
	"strings"

	"github.com/rdmatune/rdmatune/test/lab/internal/proto"
)

// Bounds of what is kept of a console: the guest is not trusted to be brief.
const (
	maxTail    = 1 << 20
	maxConsole = 64 << 20
	maxLine    = 4 << 10
)

// A console takes the guest's serial output: whole to a file, line by line to a
// writer, and the last MiB in memory. QEMU's copier is its only writer; everything
// else is called before it starts or after it ended.
type console struct {
	onReady func() // called once, when the guest says that it is up

	file    *os.File
	left    int64 // bytes that the file may still grow by
	live    io.Writer
	tail    []byte
	partial []byte // the line being received
	err     error  // the first error of file or live
}

func newConsole(path string, live io.Writer) (*console, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if live == nil {
		live = io.Discard
	}
	return &console{file: f, left: maxConsole, live: live}, nil
}

// Write never fails: a full disk must not kill the machine. Close says what went wrong.
func (c *console) Write(p []byte) (int, error) {
	n := len(p)
	keep := p[:min(int64(len(p)), c.left)]
	c.left -= int64(len(keep))
	_, err := c.file.Write(keep)
	c.note(err)
	if c.tail = append(c.tail, p...); len(c.tail) > 2*maxTail {
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-maxTail:]...)
	}
	for len(p) > 0 {
		line, rest, ended := bytes.Cut(p, []byte("\n"))
		c.partial = append(c.partial, line...)
		if ended || len(c.partial) >= maxLine {
			c.flush()
		}
		p = rest
	}
	return n, nil
}

func (c *console) flush() {
	line := bytes.TrimRight(c.partial, "\r")
	if c.onReady != nil && bytes.HasPrefix(line, []byte(proto.Ready)) {
		c.onReady()
		c.onReady = nil
	}
	_, err := c.live.Write(append(line, '\n'))
	c.note(err)
	c.partial = c.partial[:0]
}

func (c *console) note(err error) {
	if c.err == nil {
		c.err = err
	}
}

// Close ends a last unfinished line and returns the first error that a write had.
func (c *console) Close() error {
	if len(c.partial) > 0 {
		c.flush()
	}
	c.note(c.file.Close())
	return c.err
}

// Tail is the last MiB of the console, with Unix line ends.
func (c *console) Tail() string {
	return strings.ReplaceAll(string(c.tail[max(0, len(c.tail)-maxTail):]), "\r", "")
}

func (c *console) lastLines(n int) string {
	lines := strings.Split(strings.TrimRight(c.Tail(), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Prefix returns a writer that puts prefix before every line written to w. It
// expects whole lines, as Config.Console gets them.
func Prefix(w io.Writer, prefix string) io.Writer { return prefixer{w, prefix} }

type prefixer struct {
	w      io.Writer
	prefix string
}

func (p prefixer) Write(line []byte) (int, error) {
	if _, err := io.WriteString(p.w, p.prefix+string(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}
