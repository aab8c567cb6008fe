package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
)

// writeSums writes to path, for sha256sum -c in the same directory, the sums of files.
func writeSums(path string, files []string) error {
	var b bytes.Buffer
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(body), filepath.Base(file))
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
