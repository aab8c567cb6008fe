package sysfs

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// Bounds of an archive: far above a captured /sys and /proc (11,000 files and 40 MB
// for 224 CPUs), far below what would hurt the machine that reads it.
const (
	maxArchiveFiles = 1 << 20
	maxArchiveBytes = 512 << 20
	maxArchiveName  = 4096
	maxArchiveDepth = 64 // a bridge below a bridge adds one; real trees stay below 20
)

// OpenArchive reads a gzipped tar of a captured sys and proc into memory. Archives
// whose names leave the root, or that are larger than any capture, are refused.
// Writes go to layerDir.
func OpenArchive(file, layerDir string, over *Mem, opts ...Option) (FS, error) {
	f, err := os.Open(file)
	if err != nil {
		return FS{}, err
	}
	defer f.Close()
	m, err := readArchive(f)
	if err != nil {
		return FS{}, fmt.Errorf("%s: %w", file, err)
	}
	sub, err := captureRoot(m)
	if err != nil {
		return FS{}, fmt.Errorf("%s: %w", file, err)
	}
	return m.sub(sub).Open(layerDir, over, opts...), nil
}

func readArchive(r io.Reader) (*Mem, error) {
	zr, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	// The bound is on what comes out of the compressor: headers, skipped members and
	// padding cost time as well.
	lr := &io.LimitedReader{R: zr, N: maxArchiveBytes}
	tr := tar.NewReader(lr)
	m := NewMem()
	for n := 0; ; n++ {
		h, err := tr.Next()
		switch {
		case err == io.EOF && lr.N > 0:
			// The checksum stands behind the archive's own end.
			_, err := io.Copy(io.Discard, lr)
			return m, err
		case lr.N <= 0:
			return nil, fmt.Errorf("archive unpacks to more than %d MiB", maxArchiveBytes>>20)
		case err != nil:
			return nil, fmt.Errorf("archive member %d: %w", n+1, err)
		case len(m.nodes) > maxArchiveFiles:
			return nil, fmt.Errorf("archive has more than %d files", maxArchiveFiles)
		}
		if err := addMember(m, h, tr); err != nil {
			return nil, fmt.Errorf("archive member %d (%.80q): %w", n+1, h.Name, err)
		}
	}
}

// addMember puts one member into m. Devices, sockets and FIFOs are left out: a
// capture has no use for them.
func addMember(m *Mem, h *tar.Header, r io.Reader) error {
	name, err := memberName(h.Name)
	if err != nil {
		return err
	}
	if name == "." {
		return nil
	}
	switch h.Typeflag {
	case tar.TypeDir:
		m.Dir(name)
	case tar.TypeSymlink:
		if len(h.Linkname) > maxArchiveName || h.Linkname == "" {
			return errors.New("link without a usable target")
		}
		m.Link(name, h.Linkname)
	case tar.TypeLink:
		target, err := memberName(h.Linkname)
		if err != nil {
			return err
		}
		n, err := m.node(target)
		if err != nil || !n.mode.IsRegular() {
			return fmt.Errorf("hard link to %.80q, which is no earlier file of the archive", h.Linkname)
		}
		m.FileMode(name, n.mode, string(n.data))
	case tar.TypeReg:
		if h.Size > MaxFile {
			return fmt.Errorf("file of %d bytes, more than %d", h.Size, MaxFile)
		}
		b, err := io.ReadAll(io.LimitReader(r, MaxFile))
		if err != nil {
			return err
		}
		m.put(name, &memNode{mode: h.FileInfo().Mode().Perm(), data: b})
	}
	return nil
}

// memberName checks a member's name and makes it canonical.
func memberName(name string) (string, error) {
	if len(name) > maxArchiveName || strings.ContainsRune(name, 0) {
		return "", errors.New("name is too long or has a NUL")
	}
	for elem := range strings.SplitSeq(name, "/") {
		if elem == ".." {
			return "", errors.New("name leaves the archive")
		}
	}
	name = canonical(name)
	if strings.Count(name, "/") >= maxArchiveDepth {
		return "", fmt.Errorf("name is more than %d directories deep", maxArchiveDepth)
	}
	return name, nil
}

// sub returns the tree below directory name.
func (m *Mem) sub(name string) *Mem {
	if name == "." {
		return m
	}
	s := NewMem()
	s.nodes["."] = m.nodes[name]
	for key, n := range m.nodes {
		if rest, ok := strings.CutPrefix(key, name+"/"); ok {
			s.nodes[path.Clean(rest)] = n
		}
	}
	return s
}
