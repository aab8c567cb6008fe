package dmalatency

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/internal/procs"
)

// fileName is the file in the run directory that says who holds which bound.
const fileName = "cpu_dma_latency.json"

// An identity is one process of a boot.
type identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // in clock ticks since boot
}

// key is the incarnation of the target that the process holds: "812@4242".
func (i identity) key() string { return strconv.Itoa(i.PID) + "@" + strconv.FormatUint(i.Start, 10) }

// An announcement is the content of that file.
type announcement struct {
	identity
	US int32 `json:"us"`
}

func announce(runDir string, a announcement) error {
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(runDir, fileName), append(b, '\n'), 0o644, renameio.IgnoreUmask(), renameio.WithTempDir(runDir))
}

// withdraw removes the file; one that stays is believed no longer than its process lives.
func withdraw(runDir string) { _ = os.Remove(filepath.Join(runDir, fileName)) }

// errNotBelieved is an announcement that anybody may have written.
var errNotBelieved = errors.New("not believed")

// heard returns what a living process announced; ok is false when there is none.
func heard(runDir string, table procs.Table) (a announcement, ok bool, err error) {
	path := filepath.Join(runDir, fileName)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return a, false, nil
	}
	if err != nil {
		return a, false, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return a, false, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return a, false, fmt.Errorf("%s: not a file: %w", path, errNotBelieved)
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return a, false, fmt.Errorf("%s: it belongs to user %d: %w", path, st.Uid, errNotBelieved)
	case st.Mode&0o022 != 0:
		return a, false, fmt.Errorf("%s: others may write it: %w", path, errNotBelieved)
	}
	if err := json.NewDecoder(io.LimitReader(f, 4096)).Decode(&a); err != nil || a.PID <= 0 || a.US < 0 {
		return announcement{}, false, fmt.Errorf("%s: it names no process and bound: %w", path, errNotBelieved)
	}
	start, err := table.Start(a.PID)
	if errors.Is(err, procs.ErrGone) || err == nil && start != a.Start {
		return announcement{}, false, nil // left by one that was killed
	}
	return a, err == nil, err
}
