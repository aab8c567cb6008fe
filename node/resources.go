package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/procs"
	"github.com/rdmatune/rdmatune/internal/rdmanl"
)

// ErrNotObservable says that a node cannot tell: it is no running kernel, and what it
// was captured with does not say.
var ErrNotObservable = errors.New("not observable")

// resourcesFile is where a node at rest has its RDMA resources. No kernel has such a
// file: they are reached by netlink alone.
const resourcesFile = "/rdma/resources.json"

// maxResources bounds the file's entries of one kind.
const maxResources = 1 << 20

// Resources lists the RDMA devices of the node and what is allocated on them. Without
// RDMA it is rdmanl.ErrUnavailable, of a node that does not tell ErrNotObservable.
func (n *Node) Resources(ctx context.Context) (*rdmanl.Table, error) {
	if n.kind == Local {
		conn, err := rdmanl.Dial()
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		return conn.Read(ctx)
	}
	b, err := n.FS().ReadFile(resourcesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("this %s node has no running kernel to ask for RDMA resources: %w", n.kind, ErrNotObservable)
	}
	if err != nil {
		return nil, err
	}
	var t rdmanl.Table
	if err := json.Unmarshal(b, &t); err != nil {
		return nil, fmt.Errorf("%s: %w", resourcesFile, err)
	}
	if max(len(t.Devices), len(t.QPs), len(t.CQs), len(t.MRs), len(t.Contexts), len(t.CMIDs)) > maxResources {
		return nil, fmt.Errorf("%s: a list has more than %d entries", resourcesFile, maxResources)
	}
	t.Sanitize()
	return &t, nil
}

// Resources adds the RDMA resources, which are in no file. A machine without RDMA adds
// nothing.
func (s *Snapshot) Resources(ctx context.Context) error {
	t, err := s.node.Resources(ctx)
	if errors.Is(err, rdmanl.ErrUnavailable) || errors.Is(err, ErrNotObservable) {
		return nil
	}
	if err != nil {
		return err
	}
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	s.recorder.Add(resourcesFile, string(b)+"\n")
	return nil
}

// MaxConfig bounds a library's configuration file.
const MaxConfig = 1 << 20

// ReadFor returns the file name as process pid sees it, in its own root directory;
// pid 0 is rdmatune itself. Only a regular file of at most MaxConfig bytes is read.
func (n *Node) ReadFor(pid int, name string) ([]byte, error) {
	if n.kind != Local {
		b, err := n.FS().ReadFile(name)
		if err == nil && len(b) > MaxConfig {
			err = &fs.PathError{Op: "read", Path: name, Err: unix.EFBIG}
		}
		return b, err
	}
	f, err := n.openFor(pid, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxConfig+1))
	if err == nil && len(b) > MaxConfig {
		err = &fs.PathError{Op: "read", Path: name, Err: unix.EFBIG}
	}
	return b, err
}

// OpenMapped opens a file that process pid has mapped. The file is the mapped one,
// also when its name is gone or another's, where this user may look (CAP_SYS_ADMIN or
// CAP_CHECKPOINT_RESTORE), else the one of that name in the process's root directory.
// A node at rest has no such files.
func (n *Node) OpenMapped(pid int, m procs.Mapping) (*os.File, error) {
	if n.kind != Local {
		return nil, fmt.Errorf("%s: %w", m.Path, ErrNotObservable)
	}
	f, err := openRegular(unix.AT_FDCWD, "/proc/"+strconv.Itoa(pid)+"/map_files/"+m.Range, 0)
	if err == nil {
		return f, nil
	}
	if m.Deleted {
		return nil, fmt.Errorf("%s was replaced since it was mapped: %w", m.Path, err)
	}
	return n.openFor(pid, m.Path)
}

// openFor opens a regular file below the root directory of a process. Links, which
// the process may have made, stay below it.
func (n *Node) openFor(pid int, name string) (*os.File, error) {
	if pid == 0 {
		return openRegular(unix.AT_FDCWD, name, 0)
	}
	root, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(root)
	return openRegular(root, name, unix.RESOLVE_IN_ROOT|unix.RESOLVE_NO_MAGICLINKS)
}

// openRegular opens what is a regular file, without waiting for a pipe's writer.
func openRegular(dir int, name string, resolve uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY, Resolve: resolve}
	fd, err := unix.Openat2(dir, name, &how)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
