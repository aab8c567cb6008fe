// Command packaging builds what is released: binaries for amd64 and arm64, with verbs
// and without, a Debian package of each architecture, and their checksums.
//
//	go run ./packaging [-out DIR] [-version V] [-arch amd64,arm64]
//
// The same commit gives the same bytes, wherever and whenever it is built with the
// same Go and C toolchains: times are those of the commit (or of SOURCE_DATE_EPOCH),
// and no path of the machine gets in.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/spec"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

// A release is what all files of one run have in common.
type release struct {
	root    string // of the module
	version string // semantic, without a leading v
	epoch   time.Time
	log     io.Writer
}

func run(ctx context.Context, args []string, log io.Writer) error {
	flags := flag.NewFlagSet("packaging", flag.ContinueOnError)
	flags.SetOutput(log)
	var (
		out     = flags.String("out", "dist", "`directory` for the results; it is made when missing")
		version = flags.String("version", spec.Version, "`version` that the binaries and packages have")
		archs   = flags.String("arch", "amd64,arm64", "`list` of architectures")
		install = flags.Bool("install", false, "as root, install the Debian packages that are missing")
	)
	if err := flags.Parse(args); err != nil {
		return flag.ErrHelp // the flag set has said why
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	list := strings.Split(*archs, ",")
	for _, arch := range list {
		if _, ok := machines[arch]; !ok {
			return fmt.Errorf("-arch: %q is none of amd64 and arm64", arch)
		}
	}
	if !semantic.MatchString(*version) {
		return fmt.Errorf("-version: %q is no version such as 1.2.3 or 1.2.3-rc.1", *version)
	}
	if err := ensureTools(ctx, list, *install, log); err != nil {
		return err
	}
	r := release{version: *version, log: log}
	var err error
	if r.root, err = moduleRoot(ctx); err != nil {
		return err
	}
	if r.epoch, err = sourceDate(ctx, r.root); err != nil {
		return err
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	files, err := r.build(ctx, *out, list)
	if err != nil {
		return err
	}
	return writeSums(filepath.Join(*out, "SHA256SUMS"), files)
}

// build makes everything in dir and returns the files' names.
func (r release) build(ctx context.Context, dir string, archs []string) ([]string, error) {
	tmp, err := os.MkdirTemp("", "rdmatune-packaging-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	pages := filepath.Join(tmp, "docs")
	if err := r.writeDocs(ctx, tmp, pages); err != nil {
		return nil, fmt.Errorf("man pages and completions: %w", err)
	}
	var files []string
	for _, arch := range archs {
		var glibc string
		for _, verbs := range []bool{false, true} {
			b := binary{arch: arch, verbs: verbs}
			path := filepath.Join(dir, b.name(r.version))
			fmt.Fprintln(r.log, "building", path)
			if err := r.compile(ctx, b, path); err != nil {
				return nil, err
			}
			needs, err := b.check(path)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			fmt.Fprintf(r.log, "  %s\n", needs)
			glibc = needs.glibc
			files = append(files, path)
		}
		p := debian{
			release: r, arch: arch, glibc: glibc, docs: pages,
			binary: filepath.Join(dir, binary{arch: arch, verbs: true}.name(r.version)),
		}
		path := filepath.Join(dir, p.name())
		fmt.Fprintln(r.log, "packing", path)
		if err := p.build(ctx, filepath.Join(tmp, arch), path); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		files = append(files, path)
	}
	return files, nil
}

// semantic is a version that both Go's and Debian's tools order alike once its hyphen
// is a tilde.
var semantic = regexp.MustCompile(`^[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}(-[0-9A-Za-z.]{1,64})?$`)

// moduleRoot is the directory of this module, in which the command was started.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := output(exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}"))
	if err != nil {
		return "", err
	}
	path, dir, _ := strings.Cut(strings.TrimSpace(out), " ")
	if path != module {
		return "", fmt.Errorf("the current directory is not in module %s", module)
	}
	return dir, nil
}

// sourceDate is $SOURCE_DATE_EPOCH (reproducible-builds.org), or else the time of the
// commit that is checked out.
func sourceDate(ctx context.Context, root string) (time.Time, error) {
	text, from := os.Getenv("SOURCE_DATE_EPOCH"), "SOURCE_DATE_EPOCH"
	if text == "" {
		from = "git log"
		out, err := output(exec.CommandContext(ctx, "git", "-C", root, "log", "-1", "--format=%ct"))
		if err != nil {
			return time.Time{}, fmt.Errorf("no SOURCE_DATE_EPOCH and no commit: %w", err)
		}
		text = strings.TrimSpace(out)
	}
	sec, err := strconv.ParseInt(text, 10, 64)
	if err != nil || sec < 0 || sec > 1<<32 {
		return time.Time{}, fmt.Errorf("%s: %q is no time in seconds since 1970", from, text)
	}
	return time.Unix(sec, 0).UTC(), nil
}

// output runs cmd and returns what it printed; its error has the end of its complaint.
func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		complaint := strings.TrimSpace(stderr.String())
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(cmd.Path), cmd.Args[1], err, complaint[max(0, len(complaint)-2000):])
	}
	return stdout.String(), nil
}
