package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// A machine is what an architecture takes.
type machine struct {
	compiler string // Debian's name, which is the same on every build machine
	// Debian packages with the compiler and C library: for building on the
	// architecture itself, and on others.
	native, cross []string
}

var machines = map[string]machine{
	"amd64": {
		compiler: "x86_64-linux-gnu-gcc",
		native:   []string{"gcc", "libc6-dev"}, cross: []string{"gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"},
	},
	"arm64": {
		compiler: "aarch64-linux-gnu-gcc",
		native:   []string{"gcc", "libc6-dev"}, cross: []string{"gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"},
	},
}

// neededPackages are the Debian packages that a build of archs on a host takes.
func neededPackages(archs []string, host string) []string {
	all := []string{"dpkg"}
	for _, arch := range archs {
		if arch == host {
			all = append(all, machines[arch].native...)
		} else {
			all = append(all, machines[arch].cross...)
		}
	}
	return all
}

func aptInstall(ctx context.Context, packages []string) error {
	for _, args := range [][]string{{"update", "-q"}, append([]string{"install", "-q", "-y", "--no-install-recommends"}, packages...)} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if _, err := output(cmd); err != nil {
			return fmt.Errorf("install %s: %w", strings.Join(packages, " "), err)
		}
	}
	return nil
}

// ensureTools checks that the Debian packages are there. What is missing it installs
// when it is told to, and otherwise names in its error.
func ensureTools(ctx context.Context, archs []string, install bool, log io.Writer) error {
	missing := missingPackages(ctx, neededPackages(archs, runtime.GOARCH))
	if len(missing) == 0 {
		return nil
	}
	if !install {
		return fmt.Errorf("missing Debian packages; run as root: apt-get install --no-install-recommends %s", strings.Join(missing, " "))
	}
	fmt.Fprintln(log, "installing:", strings.Join(missing, " "))
	return aptInstall(ctx, missing)
}

// missingPackages are those of packages that are not installed.
func missingPackages(ctx context.Context, packages []string) []string {
	return slices.DeleteFunc(slices.Clone(packages), func(name string) bool {
		status, err := output(exec.CommandContext(ctx, "dpkg-query", "-W", "-f=${Status}", name))
		return err == nil && strings.HasSuffix(status, " ok installed")
	})
}
