package control

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/rdmatune/rdmatune/internal/smallfile"
)

const (
	hintsDir    = "hints"
	maxHintFile = 16 << 10
	maxFileName = 200 // bytes of an encoded name, below every file system's limit
)

// A published hint is a file of RUN/hints.
type published struct {
	Version  int      `json:"version"`
	Workload string   `json:"workload"`
	Settings Settings `json:"settings"`
}

// FileName returns the name of a workload's file: letters, digits, '-', '_' and
// inner dots stand for themselves, every other byte is %XX. A name that would get
// too long ends in a digest instead.
func FileName(workload string) string {
	var b strings.Builder
	for i := range len(workload) {
		c := workload[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	name := b.String()
	if len(name) > maxFileName {
		sum := sha256.Sum256([]byte(workload))
		// '+' occurs in no short name.
		name = name[:100] + "+" + hex.EncodeToString(sum[:])
	}
	return name + ".json"
}

func hintPath(runDir, workload string) string {
	return filepath.Join(runDir, hintsDir, FileName(workload))
}

// ReadPublished returns what was published for a workload, nil when nothing was,
// and the file's path. A file that is not root's or this user's, or that
// others may write, is refused.
func ReadPublished(runDir, workload string) (*Settings, string, error) {
	path := hintPath(runDir, workload)
	b, err := smallfile.Read(path, maxHintFile, smallfile.Trusted)
	if errors.Is(err, os.ErrNotExist) {
		return nil, path, nil
	}
	if err != nil {
		return nil, path, err
	}
	s, err := parsePublished(b, workload)
	if err != nil {
		return nil, path, fmt.Errorf("%s: %w", path, err)
	}
	return s, path, nil
}

func parsePublished(b []byte, workload string) (*Settings, error) {
	var p published
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, err
	}
	if p.Version != Version || p.Workload != workload {
		return nil, fmt.Errorf("version %d for workload %.100q", p.Version, p.Workload)
	}
	return &p.Settings, p.Settings.Check()
}

// Publish writes what future processes of a workload will find.
func Publish(runDir, workload string, s Settings) error {
	if err := s.Check(); err != nil {
		return fmt.Errorf("publish for %s: %w", workload, err)
	}
	b, err := json.MarshalIndent(published{Version, workload, s}, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Join(runDir, hintsDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := renameio.WriteFile(hintPath(runDir, workload), append(b, '\n'), 0o644, renameio.IgnoreUmask(), renameio.WithTempDir(dir)); err != nil {
		return err
	}
	return syncDir(dir)
}

// Unpublish removes what Publish wrote; nothing there is no error.
func Unpublish(runDir, workload string) error {
	if err := os.Remove(hintPath(runDir, workload)); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	return syncDir(filepath.Join(runDir, hintsDir))
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
