package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// needs maps what the lab uses to the Debian package that has it. A name without a
// slash is a program; the others are patterns of a file.
var needs = map[string]string{
	"qemu-system-x86_64":    "qemu-system-x86",
	"iasl":                  "acpica-tools",
	"dpkg-deb":              "dpkg",
	"xz":                    "xz-utils",
	"ldd":                   "libc-bin",
	"gcc":                   "gcc",
	"/usr/include/stdlib.h": "libc6-dev",
	"dash":                  "dash",
	"awk":                   "mawk",
	"ps":                    "procps",
	"kmod":                  "kmod",
	"ip":                    "iproute2",
	"rdma":                  "iproute2",
	"ethtool":               "ethtool",
	"taskset":               "util-linux",
	"irqbalance":            "irqbalance",
	"ibv_devinfo":           "ibverbs-utils",
	"ib_send_lat":           "perftest",
	providers + "/librxe-*": "ibverbs-providers",
}

// providers is where Debian's libibverbs looks for its providers.
const providers = "/usr/lib/x86_64-linux-gnu/libibverbs"

// EnsurePackages checks that everything the lab needs is installed. What is missing
// it installs when it may and is root, and otherwise names in its error. Run calls it;
// a caller that compiles something first calls it before.
func EnsurePackages(ctx context.Context, log io.Writer, install bool) error {
	missing, err := missingPackages()
	if err != nil || len(missing) == 0 {
		return err
	}
	command := "apt-get install -y --no-install-recommends " + strings.Join(missing, " ")
	if !install || os.Geteuid() != 0 {
		return fmt.Errorf("missing Debian packages; run as root: %s", command)
	}
	fmt.Fprintln(log, "installing:", strings.Join(missing, " "))
	if err := apt(ctx, "update", "-q"); err != nil {
		return err
	}
	if err := apt(ctx, strings.Fields(command)[1:]...); err != nil {
		return err
	}
	if missing, err = missingPackages(); err == nil && len(missing) > 0 {
		err = fmt.Errorf("still missing after %q: %s", command, strings.Join(missing, " "))
	}
	return err
}

func missingPackages() ([]string, error) {
	var missing []string
	for thing, pkg := range needs {
		var found bool
		if strings.Contains(thing, "/") {
			files, err := filepath.Glob(thing)
			if err != nil {
				return nil, err
			}
			found = len(files) > 0
		} else {
			_, err := program(thing)
			found = err == nil
		}
		if !found && !slices.Contains(missing, pkg) {
			missing = append(missing, pkg)
		}
	}
	slices.Sort(missing)
	return missing, nil
}

// program finds an installed program, also in the directories of the administrator's
// tools, which an ordinary user's path leaves out.
func program(name string) (string, error) {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		path := filepath.Join(dir, name)
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

// apt runs apt-get without questions.
func apt(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return errors.New("apt-get: not found: the lab needs Debian 12 or newer on amd64")
	}
	if err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", args[0], err, lastPart(out))
	}
	return nil
}

// lastPart is the end of a tool's output, where its complaint is.
func lastPart(out []byte) string {
	return strings.TrimSpace(string(out[max(0, len(out)-2000):]))
}
