package node

import (
	"os"
	"path/filepath"
)

// DefaultStateDir is where state is kept unless a flag says otherwise:
// /var/lib/rdmatune for root, else rdmatune below the user's state directory
// ($XDG_STATE_HOME, ~/.local/state).
func DefaultStateDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/rdmatune"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "rdmatune")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/nonexistent" // a user without a home gets an error at the first write, not a guess
	}
	return filepath.Join(home, ".local", "state", "rdmatune")
}
