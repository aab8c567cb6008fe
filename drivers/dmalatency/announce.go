package dmalatency

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/renameio/v2"

	"github.com/rdmatune/rdmatune/internal/procs"
	"github.com/rdmatune/rdmatune/internal/smallfile"
)

// fileName is the file in the run directory that says who holds which bound.
const fileName = "cpu_dma_latency.json"

// maxAnnouncement bounds that file, in bytes.
const maxAnnouncement = 4096

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

// heard returns what a living process announced; ok is false when there is none. An
// announcement that anybody may have written is an error.
func heard(runDir string, table procs.Table) (a announcement, ok bool, err error) {
	path := filepath.Join(runDir, fileName)
	b, err := smallfile.Read(path, maxAnnouncement, smallfile.Trusted)
	if errors.Is(err, fs.ErrNotExist) {
		return a, false, nil
	}
	if err != nil {
		return a, false, err
	}
	if err := json.Unmarshal(b, &a); err != nil || a.PID <= 0 || a.US < 0 {
		return announcement{}, false, fmt.Errorf("%s: it names no process and bound", path)
	}
	start, err := table.Start(a.PID)
	if errors.Is(err, procs.ErrGone) || err == nil && start != a.Start {
		return announcement{}, false, nil // left by one that was killed
	}
	return a, err == nil, err
}
