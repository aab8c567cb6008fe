package vm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// buildGuest compiles the guest's init, static, from this module's source: a run
// starts somewhere in the module's tree.
func buildGuest(ctx context.Context, path string) error {
	return build(ctx, path, "github.com/rdmatune/rdmatune/test/lab/guest", "CGO_ENABLED=0", "GOARCH=amd64")
}

// BuildRDMATune compiles cmd/rdmatune with its verbs binding, as users build it, to
// path, for Config.Programs. It needs a C compiler.
func BuildRDMATune(ctx context.Context, path string) error {
	return build(ctx, path, "github.com/rdmatune/rdmatune/cmd/rdmatune", "CGO_ENABLED=1")
}

func build(ctx context.Context, path, pkg string, env ...string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", path, pkg)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w: %s", pkg, err, lastPart(out))
	}
	return nil
}
