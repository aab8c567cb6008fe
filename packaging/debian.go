package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed debian rdmatune.service
var static embed.FS

// maintainer is where Debian's tools want an address; .invalid has none (RFC 2606).
const maintainer = "rdmatune authors <authors@rdmatune.invalid>"

// A debian is one architecture's package.
type debian struct {
	release
	arch   string
	glibc  string // lowest version of libc6
	binary string
	docs   string // what writeDocs has written
}

// version is the release's as Debian orders it: 1.0.0~rc.1 comes before 1.0.0.
func (p debian) debianVersion() string { return strings.Replace(p.version, "-", "~", 1) }

func (p debian) name() string { return "rdmatune_" + p.debianVersion() + "_" + p.arch + ".deb" }

// build lays the package out in dir and packs it to path.
func (p debian) build(ctx context.Context, dir, path string) error {
	t := tree{dir: dir}
	p.install(&t)
	if t.err != nil {
		return t.err
	}
	p.control(&t)
	if t.err != nil {
		return t.err
	}
	// Times after the epoch become the epoch: all of them, as everything was just made.
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--root-owner-group", "--threads-max=1", "-Zxz", "--build", dir, path)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(p.epoch.Unix(), 10))
	_, err := output(cmd)
	return err
}

// install lays out what the package installs.
func (p debian) install(t *tree) {
	t.copy("usr/bin/rdmatune", p.binary, 0o755)
	t.dir755("etc/rdmatune")
	t.static("usr/lib/systemd/system/rdmatune.service", "rdmatune.service", 0o644)
	t.static("etc/default/rdmatune", "debian/rdmatune.default", 0o644)
	t.copy("usr/share/bash-completion/completions/rdmatune", filepath.Join(p.docs, "bash/rdmatune"), 0o644)
	t.copy("usr/share/zsh/vendor-completions/_rdmatune", filepath.Join(p.docs, "zsh/_rdmatune"), 0o644)
	t.copy("usr/share/fish/vendor_completions.d/rdmatune.fish", filepath.Join(p.docs, "fish/rdmatune.fish"), 0o644)
	for _, page := range t.glob(filepath.Join(p.docs, "man1/*.1")) {
		t.gzip("usr/share/man/man1/"+filepath.Base(page)+".gz", t.read(page))
	}
	const doc = "usr/share/doc/rdmatune/"
	t.static(doc+"copyright", "debian/copyright", 0o644)
	t.gzip(doc+"changelog.gz", []byte(p.changelog()))
	t.copy(doc+"README.md", filepath.Join(p.root, "README.md"), 0o644)
	for _, pattern := range []string{"docs/*.md", "examples/*.hcl", "examples/demo/*.hcl"} {
		for _, file := range t.glob(filepath.Join(p.root, pattern)) {
			rel, err := filepath.Rel(p.root, file)
			t.fail(err)
			t.copy(doc+rel, file, 0o644)
		}
	}
}

// control lays out what dpkg reads: deb-control(5), deb-conffiles(5), maintainer scripts.
func (p debian) control(t *tree) {
	size, sums := t.sums()
	t.write("DEBIAN/control", fmt.Appendf(nil, `Package: rdmatune
Version: %s
Architecture: %s
Maintainer: %s
Installed-Size: %d
Depends: libc6 (>= %s)
Recommends: libibverbs1, ibverbs-providers
Section: admin
Priority: optional
Homepage: https://%s
Description: declarative tuning of RDMA and GPU nodes
 HCL specs say which CPUs a workload's processes run on, at which frequency,
 where the NIC's interrupts go, and how large its messages typically are.
 rdmatune shows what differs on this node and on its live connections, makes it
 so, keeps it so, and can undo all of it.
 .
 The daemon runs when there is a spec in /etc/rdmatune.
`, p.debianVersion(), p.arch, maintainer, size, p.glibc, module), 0o644)
	t.write("DEBIAN/conffiles", []byte("/etc/default/rdmatune\n"), 0o644)
	t.write("DEBIAN/md5sums", sums, 0o644)
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		t.static("DEBIAN/"+script, "debian/"+script, 0o755)
	}
}

// changelog has the one entry that Debian's policy asks for (deb-changelog(5)).
func (p debian) changelog() string {
	return fmt.Sprintf("rdmatune (%s) stable; urgency=medium\n\n  * Release %s; https://%s has the changes.\n\n -- %s  %s\n",
		p.debianVersion(), p.version, module, maintainer, p.epoch.Format("Mon, 02 Jan 2006 15:04:05 -0700"))
}

// A tree is a package's files on their way into it. The first error stays; later calls
// do nothing.
type tree struct {
	dir string
	err error
}

func (t *tree) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

// dir755 makes a directory and its parents, with modes that do not follow the umask.
func (t *tree) dir755(name string) {
	if t.err != nil {
		return
	}
	if name != "." {
		t.dir755(filepath.Dir(name))
	}
	full := filepath.Join(t.dir, name)
	t.fail(os.MkdirAll(full, 0o755))
	if t.err == nil {
		t.fail(os.Chmod(full, 0o755))
	}
}

func (t *tree) write(name string, body []byte, mode fs.FileMode) {
	t.dir755(filepath.Dir(name))
	if t.err != nil {
		return
	}
	full := filepath.Join(t.dir, name)
	t.fail(os.WriteFile(full, body, mode))
	if t.err == nil {
		t.fail(os.Chmod(full, mode))
	}
}

func (t *tree) read(path string) []byte {
	body, err := os.ReadFile(path)
	t.fail(err)
	return body
}

func (t *tree) copy(name, from string, mode fs.FileMode) { t.write(name, t.read(from), mode) }

// static writes one of the files that are beside this one in the source.
func (t *tree) static(name, from string, mode fs.FileMode) {
	body, err := static.ReadFile(from)
	t.fail(err)
	t.write(name, body, mode)
}

// gzip writes body compressed, without name and time.
func (t *tree) gzip(name string, body []byte) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	t.fail(err)
	if t.err != nil {
		return
	}
	_, err = w.Write(body)
	t.fail(err)
	t.fail(w.Close())
	t.write(name, b.Bytes(), 0o644)
}

// glob returns what pattern matches, sorted; nothing is an error, since something was
// meant.
func (t *tree) glob(pattern string) []string {
	files, err := filepath.Glob(pattern)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: no such files", pattern)
	}
	t.fail(err)
	return files
}

// sums returns the size of the tree in KiB as Debian's policy counts it, every file
// rounded up and every directory as one, and deb-md5sums(5) of all files, which must
// not yet include those of DEBIAN.
func (t *tree) sums() (kib int64, md5sums []byte) {
	t.fail(filepath.WalkDir(t.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			kib++
			return nil
		}
		rel, err := filepath.Rel(t.dir, path)
		if err != nil {
			return err
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		kib += (int64(len(body)) + 1023) / 1024
		md5sums = fmt.Appendf(md5sums, "%x  %s\n", md5.Sum(body), rel)
		return nil
	}))
	return kib, md5sums
}
