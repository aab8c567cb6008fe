package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A kernel is Debian's, unpacked in the cache.
type kernel struct {
	Version string // "6.1.0-57-amd64"
	Image   string // uncompressed ELF image
	Modules string // the directory of its module tree
}

// cacheDir is where the lab keeps what takes long to get, made when it is missing.
func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "rdmatune-lab")
	return dir, os.MkdirAll(dir, 0o755)
}

// findKernel returns the kernel that linux-image-amd64 stands for, fetching and
// unpacking it (never installing) into the user's cache when it is not there. When
// apt knows of none, the newest cached kernel will do.
func findKernel(ctx context.Context, log io.Writer, update bool) (kernel, error) {
	cache, err := cacheDir()
	if err != nil {
		return kernel{}, err
	}
	unlock, err := lock(filepath.Join(cache, "lock"))
	if err != nil {
		return kernel{}, err
	}
	defer unlock()
	version, err := currentKernel(ctx)
	if err != nil && update && os.Geteuid() == 0 {
		if err := apt(ctx, "update", "-q"); err != nil {
			return kernel{}, err
		}
		version, err = currentKernel(ctx)
	}
	if err != nil {
		cached, globErr := filepath.Glob(filepath.Join(cache, "*-amd64"))
		if globErr != nil || len(cached) == 0 {
			return kernel{}, errors.Join(err, globErr)
		}
		slices.Sort(cached)
		version = filepath.Base(cached[len(cached)-1])
	}
	dir := filepath.Join(cache, version)
	k := kernel{
		Version: version,
		Image:   filepath.Join(dir, "vmlinux"),
		Modules: filepath.Join(dir, "lib/modules", version),
	}
	if _, err := os.Stat(k.Image); err == nil {
		return k, nil
	}
	fmt.Fprintln(log, "downloading linux-image-"+version, "into", cache)
	return k, unpackKernel(ctx, cache, version)
}

var kernelPackage = regexp.MustCompile(`(?m)^\s*Depends: linux-image-([0-9][0-9a-z.+~-]*-amd64)$`)

// currentKernel asks apt which version linux-image-amd64 depends on.
func currentKernel(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-cache", "depends", "linux-image-amd64").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("apt-cache depends linux-image-amd64: %w: %s", err, lastPart(out))
	}
	m := kernelPackage.FindSubmatch(out)
	if m == nil {
		return "", errors.New("apt knows no kernel for linux-image-amd64; apt-get update may help")
	}
	return string(m[1]), nil
}

// unpackKernel makes cache/version whole or not at all.
func unpackKernel(ctx context.Context, cache, version string) error {
	tmp, err := os.MkdirTemp(cache, "unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	get := exec.CommandContext(ctx, "apt-get", "download", "-q", "linux-image-"+version)
	get.Dir = tmp
	if out, err := get.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get download: %w: %s", err, lastPart(out))
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("apt-get download left %d packages: %w", len(debs), err)
	}
	root := filepath.Join(tmp, "root")
	if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", debs[0], root).CombinedOutput(); err != nil {
		return fmt.Errorf("dpkg-deb -x: %w: %s", err, lastPart(out))
	}
	packed, err := os.ReadFile(filepath.Join(root, "boot", "vmlinuz-"+version))
	if err != nil {
		return err
	}
	image, err := vmlinux(ctx, packed)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "vmlinux"), image, 0o644); err != nil {
		return err
	}
	return os.Rename(root, filepath.Join(cache, version))
}

// vmlinux cuts the uncompressed kernel out of a bzImage: the first xz stream in it
// that unpacks to an ELF file. QEMU boots that directly, which saves unpacking 10 MB
// of xz under emulation.
func vmlinux(ctx context.Context, bzImage []byte) ([]byte, error) {
	magic := []byte{0xfd, '7', 'z', 'X', 'Z', 0}
	for at := 0; ; at++ {
		i := bytes.Index(bzImage[at:], magic)
		if i < 0 {
			return nil, errors.New("no xz stream with an ELF file in the kernel image")
		}
		at += i
		xz := exec.CommandContext(ctx, "xz", "-dc", "--single-stream")
		xz.Stdin = bytes.NewReader(bzImage[at:])
		// What follows the stream makes xz complain; the output decides.
		if out, _ := xz.Output(); bytes.HasPrefix(out, []byte("\x7fELF")) {
			return out, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// lock takes the file's lock, waiting for its turn.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}

// moduleName is the name that the kernel gives the module of a file: dashes become
// underscores.
func moduleName(path string) string {
	return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(path), ".ko"), "-", "_")
}
