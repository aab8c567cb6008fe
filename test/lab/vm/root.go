package vm

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/test/lab/internal/proto"
)

// debootstrap makes a Debian 12 with systemd and what sets the machine up and looks at
// it: what every Debian has, but without apt.
var debootstrap = []string{
	"--variant=essential", "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
	"--include=usr-is-merged,systemd,systemd-sysv,kmod,iproute2,procps,ethtool", "bookworm",
}

// DebianRoot returns a tar file for Config.Root: a Debian 12 whose packages are installed
// and whose dpkg works. It is made in the user's cache when it is not there, which
// downloads some 30 MB. mmdebstrap is installed when missing, install says so, and this
// process is root.
func DebianRoot(ctx context.Context, log io.Writer, install bool) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(cache, "root.lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	sum := sha256.Sum256([]byte(strings.Join(debootstrap, " ")))
	path := filepath.Join(cache, fmt.Sprintf("debian-%x.tar", sum[:4]))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if _, err := program("mmdebstrap"); err != nil {
		if !install || os.Geteuid() != 0 {
			return "", errors.New("missing Debian package; run as root: apt-get install -y --no-install-recommends mmdebstrap")
		}
		fmt.Fprintln(log, "installing: mmdebstrap")
		if err := apt(ctx, "update", "-q"); err != nil {
			return "", err
		}
		if err := apt(ctx, "install", "-q", "-y", "--no-install-recommends", "mmdebstrap"); err != nil {
			return "", err
		}
	}
	fmt.Fprintln(log, "making a root file system in", cache)
	part := path + ".part"
	cmd := exec.CommandContext(ctx, "mmdebstrap", slices.Concat([]string{"--format=tar"}, debootstrap, []string{part})...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("mmdebstrap: %w: %s", err, lastPart(out)), os.RemoveAll(part))
	}
	return path, os.Rename(part, path)
}

// unused are directories of a root file system that a machine does without.
var unused = []string{
	"dev", "proc", "sys", "run", "tmp", // mounted over
	"usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/i18n", "usr/share/zoneinfo",
	"usr/lib/x86_64-linux-gnu/gconv", "var/cache", "var/lib/apt",
}

// labService makes systemd run the script when everything else is up.
const labService = `[Unit]
Description=The script of the lab
After=multi-user.target
[Service]
Type=exec
ExecStart=` + proto.Init + `
StandardOutput=file:/dev/console
StandardError=file:/dev/console
`

// masked are units that a machine without users, clock and disk has no use for: each
// costs a second under emulation.
var masked = strings.Fields(`
	getty.target systemd-logind.service systemd-timesyncd.service systemd-networkd.service
	systemd-random-seed.service systemd-sysusers.service systemd-sysctl.service systemd-modules-load.service
	systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-user-sessions.service
	systemd-journal-flush.service modprobe@.service dev-hugepages.mount dev-mqueue.mount`)

// addSystem makes a root file system of the tar file.
func addSystem(a *cpio, path string) error {
	const units = "/etc/systemd/system/"
	a.File(units+"lab.service", 0o644, []byte(labService))
	a.Link(units+"multi-user.target.wants/lab.service", "../lab.service")
	a.Link(units+"default.target", "/usr/lib/systemd/system/multi-user.target")
	for _, unit := range masked {
		a.Link(units+unit, "/dev/null")
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := addTar(a, f, unused); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// addTar adds what a tar file holds, all of it owned by root, but for the directories
// named. A hard link becomes a file of its own.
func addTar(a *cpio, r io.Reader, without []string) error {
	linked := map[string][]byte{} // every file: tar does not say which will be linked to
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.Trim(strings.TrimPrefix(h.Name, "."), "/")
		if name == "" || below(without, name) {
			continue
		}
		perm := uint32(h.Mode & 0o7777)
		switch h.Typeflag {
		case tar.TypeDir:
			a.add(name, typeDir|perm, 0, 0, nil)
		case tar.TypeSymlink:
			a.Link(name, h.Linkname)
		case tar.TypeReg:
			body, err := io.ReadAll(t)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			a.File(name, perm, body)
			linked[name] = body
		case tar.TypeLink:
			target := strings.Trim(strings.TrimPrefix(h.Linkname, "."), "/")
			body, ok := linked[target]
			if !ok {
				return fmt.Errorf("%s: hard link to %s, which did not come before", name, target)
			}
			a.File(name, perm, body)
		default:
			return fmt.Errorf("%s: of type %q, which the lab does not expect", name, h.Typeflag)
		}
	}
}

// below reports whether name is one of dirs or in one of them.
func below(dirs []string, name string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") })
}
