package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// largeSpec manages every interrupt of the node's sixteen cards and every clock policy.
const largeSpec = `workload "nic" {
  for_each = { for i in range(16) : tostring(i) => "mlx5_${i}" }
  device   = each.value
  irq_affinity {
    cpus = cpus_near(each.value, { cores = 4 })
  }
}

workload "clock" {
  frequency_lock {
    frequency = "2450MHz"
    cpus      = "0-255"
  }
}
`

// inside is set for the process that has a mount namespace of its own, to its directory.
const inside = "RDMATUNE_COST_INSIDE"

// buildForTmpfs makes the daemon that lets tmpfs pass, without a change to the tree.
func buildForTmpfs(ctx context.Context, work string) error {
	root, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	dir := filepath.Dir(strings.TrimSpace(string(root)))
	file := filepath.Join(dir, "reconcile/watch/files.go")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	was, is := []byte("case unix.PROC_SUPER_MAGIC,"), []byte("case unix.TMPFS_MAGIC, unix.PROC_SUPER_MAGIC,")
	if bytes.Count(text, was) != 1 {
		return fmt.Errorf("%s: %q is not there once", file, was)
	}
	patched := filepath.Join(work, "files.go")
	if err := os.WriteFile(patched, bytes.Replace(text, was, is, 1), 0o600); err != nil {
		return err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: patched}})
	if err != nil {
		return err
	}
	list := filepath.Join(work, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return err
	}
	cmd := command(ctx, "go", "build", "-trimpath", "-overlay", list, "-o", filepath.Join(work, "rdmatune"), "./cmd/rdmatune")
	cmd.Dir = dir
	return cmd.Run()
}

// idle lays the node's files over this machine's, starts the daemon and looks at it.
func idle(ctx context.Context, work string, settle, window time.Duration, windows int) error {
	if err := lay(ctx, work); err != nil {
		return err
	}
	d, err := start(ctx, work)
	if err != nil {
		return err
	}
	defer d.stop()
	fmt.Printf("the first look, until %v have passed\n", settle)
	if err := d.wait(ctx, settle); err != nil {
		return err
	}
	for range windows {
		before, err := d.used()
		if err != nil {
			return err
		}
		began := time.Now()
		if err := d.wait(ctx, window); err != nil {
			return err
		}
		after, err := d.used()
		if err != nil {
			return err
		}
		fmt.Println(after.since(before, time.Since(began)))
	}
	return d.status(ctx)
}

// lay makes the large node's files, with what the spec wants in them, and mounts them.
func lay(ctx context.Context, work string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	program, node := filepath.Join(work, "rdmatune"), filepath.Join(work, "node.hcl")
	tree, archive := filepath.Join(work, "tree"), filepath.Join(work, "large.tar.gz")
	if err := errors.Join(os.Mkdir(tree, 0o755), os.WriteFile(node, []byte(largeSpec), 0o600)); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", tree, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if err := os.Setenv("RDMATUNE_RUN_DIR", filepath.Join(work, "run")); err != nil {
		return err
	}
	// A file of tmpfs keeps what a shorter value does not overwrite. So what the spec wants is
	// written by an apply to the captured node, which puts it into a layer of its own, and is
	// there when the daemon comes.
	sim := filepath.Join(work, "sim")
	for _, args := range [][]string{
		{program, "snapshot", "--node", "sim:large", archive},
		{"tar", "-C", tree, "-xzf", archive},
		{program, "apply", "--auto-approve", "--node", tree, "--state-dir", sim, node},
		{"sh", "-c", `cp -a "$1"/nodes/*/layer/. "$2"`, "sh", sim, tree},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	for _, dir := range []string{"/sys", "/proc/irq", "/proc/interrupts"} {
		if err := unix.Mount(filepath.Join(tree, dir), dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount over %s: %w", dir, err)
		}
	}
	return nil
}
