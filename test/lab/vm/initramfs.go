package vm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/test/lab/internal/proto"
)

// tools are the host's programs that every script finds in the guest.
var tools = strings.Fields(`
	dash ip ss rdma ethtool taskset chrt irqbalance kmod ps pgrep
	ibv_devinfo ibv_devices ibv_rc_pingpong ib_send_lat ib_send_bw ib_write_lat ib_write_bw ib_read_lat
	awk basename cat chmod cmp cp cut date dd diff dirname dmesg echo env expr false find grep head id kill ln ls
	mkdir mkfifo mount mv nproc od printf pwd readlink rm rmdir sed seq setsid sleep sort stat stdbuf sync tail
	tee test timeout touch tr true umount uname uniq wc xargs`)

// links are the names under which some of them are also called.
var links = map[string]string{
	"/bin/sh": "/usr/bin/dash", "/usr/bin/modinfo": "kmod", "/usr/bin/insmod": "kmod",
	"/usr/bin/rmmod": "kmod", "/usr/bin/lsmod": "kmod",
}

// texts are the files of /etc that libraries look for.
var texts = map[string]string{
	"/etc/passwd":        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
	"/etc/group":         "root:x:0:\nnogroup:x:65534:\n",
	"/etc/hosts":         "127.0.0.1 localhost lab\n" + proto.Addresses[0] + " lab0\n" + proto.Addresses[1] + " lab1\n",
	"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
	// Which provider library handles rxe devices (libibverbs' own configuration).
	"/etc/libibverbs.d/rxe.driver": "driver rxe\n",
}

// writeInitramfs writes the guest's whole root file system to path.
func writeInitramfs(ctx context.Context, path string, c Config, k kernel, init string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 1<<20)
	a := newCpio(w)
	if c.Root != "" {
		err = addSystem(a, c.Root)
	} else {
		err = addTools(ctx, a)
	}
	if err != nil {
		return err
	}
	a.Char("/dev/console", 5, 1) // the kernel opens it for init before anything is mounted
	if err := addFile(a, "/init", init); err != nil {
		return err
	}
	if err := addModules(a, k); err != nil {
		return err
	}
	a.File(proto.Script, 0o755, []byte(c.Script))
	for _, file := range c.Files {
		if err := addTree(a, filepath.Join(proto.Dir, filepath.Base(file)), file); err != nil {
			return err
		}
	}
	if err := addPrograms(ctx, a, c.Programs, nil); err != nil {
		return err
	}
	if err := a.Close(); err != nil {
		return err
	}
	return w.Flush()
}

// addTree adds a file, or a directory with all the files below it.
func addTree(a *cpio, name, host string) error {
	return filepath.WalkDir(host, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(host, path)
		if err != nil {
			return err
		}
		return addFile(a, filepath.Join(name, rel), path)
	})
}

func addFile(a *cpio, name, host string) error {
	st, err := os.Stat(host)
	if err != nil {
		return err
	}
	body, err := os.ReadFile(host)
	if err != nil {
		return err
	}
	a.File(name, uint32(st.Mode().Perm()), body)
	return nil
}

// addModules puts the modules where modinfo and insmod users expect them, and their
// load order where the guest looks.
func addModules(a *cpio, k kernel) error {
	files, err := moduleOrder(k.Modules, wanted)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, file := range files {
		name := filepath.Join("/lib/modules", k.Version, filepath.Base(file))
		if err := addFile(a, name, file); err != nil {
			return err
		}
		fmt.Fprintln(&list, name)
	}
	a.File(proto.Modules, 0o644, []byte(list.String()))
	return nil
}

// addTools makes a root file system out of the host's tools.
func addTools(ctx context.Context, a *cpio) error {
	for _, dir := range []string{"/root", "/var/lib", "/var/log", "/usr/sbin", "/sbin"} {
		a.Dir(dir)
	}
	for name, text := range texts {
		a.File(name, 0o644, []byte(text))
	}
	for name, target := range links {
		a.Link(name, target)
	}
	var hosts []string
	for _, t := range tools {
		path, err := program(t)
		if err != nil {
			return err
		}
		hosts = append(hosts, path)
	}
	// libibverbs opens the rxe provider at run time, so no program names it.
	rxe, err := filepath.Glob(providers + "/librxe-*.so")
	if err != nil {
		return err
	}
	return addPrograms(ctx, a, hosts, rxe)
}

// addPrograms adds programs to /usr/bin, plugins where they are on the host, and the
// libraries of them all.
func addPrograms(ctx context.Context, a *cpio, programs, plugins []string) error {
	if len(programs) == 0 {
		return nil
	}
	for _, host := range programs {
		if err := addFile(a, filepath.Join("/usr/bin", filepath.Base(host)), host); err != nil {
			return err
		}
	}
	for _, lib := range plugins {
		if err := addFile(a, lib, lib); err != nil {
			return err
		}
	}
	libs, err := libraries(ctx, slices.Concat(programs, plugins))
	if err != nil {
		return err
	}
	for _, lib := range libs {
		if err := addFile(a, lib, lib); err != nil {
			return err
		}
	}
	return nil
}

var lddPath = regexp.MustCompile(`(?m)(/\S+) \(0x[0-9a-f]+\)$`)

// libraries returns the shared objects that ldd finds for the files, the dynamic
// loader among them, at the paths where the loader will look for them.
func libraries(ctx context.Context, files []string) ([]string, error) {
	var libs []string
	seen := map[string]bool{}
	// ldd fails when any file is static, which is no failure here; a library that is
	// not found shows when the program does not start.
	out, err := exec.CommandContext(ctx, "ldd", files...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	for _, m := range lddPath.FindAllSubmatch(out, -1) {
		if lib := string(m[1]); !seen[lib] {
			seen[lib] = true
			libs = append(libs, lib)
		}
	}
	return libs, nil
}
