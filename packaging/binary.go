package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

const module = "github.com/rdmatune/rdmatune"

// A binary is one build of cmd/rdmatune.
type binary struct {
	arch string // as Go spells it, and Debian too
	// verbs is whether the binding to libibverbs is in: it takes cgo, and then the
	// program is a dynamic one of glibc, which opens the library at run time. Without,
	// it is static and runs on every Linux.
	verbs bool
}

func (b binary) name(version string) string {
	name := "rdmatune_" + version + "_linux_" + b.arch
	if !b.verbs {
		name += "_noverbs"
	}
	return name
}

// compile builds b to path. The environment is this process's without what would
// change the result.
func (r release) compile(ctx context.Context, b binary, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	link := "-s -w -X " + module + "/spec.Version=" + r.version
	args := []string{"build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-o", path}
	env := []string{"GOOS=linux", "GOARCH=" + b.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off", "CGO_ENABLED=0"}
	if b.verbs {
		args = append(args, "-buildmode=pie")
		link += " -linkmode external -extldflags '-Wl,-z,relro,-z,now'"
		env = append(env, "CGO_ENABLED=1", "CC="+machines[b.arch].compiler, "CGO_CFLAGS=-O2", "CGO_CPPFLAGS=", "CGO_LDFLAGS=")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "-ldflags="+link, "./cmd/rdmatune")...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), env...)
	_, err = output(cmd)
	return err
}

// writeDocs lets a build for this machine write its man pages and completions to dir:
// they are the same on every architecture. Its environment is empty, since some
// defaults that help shows come from there.
func (r release) writeDocs(ctx context.Context, tmp, dir string) error {
	program := filepath.Join(tmp, "rdmatune")
	if err := r.compile(ctx, binary{arch: runtime.GOARCH}, program); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "docs", dir)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/root"}
	_, err := output(cmd)
	return err
}
