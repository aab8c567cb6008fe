package verbs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// AllocMem returns n bytes of zeroed, page-aligned memory outside the Go heap: a
// device and C may hold its address. FreeMem gives it back.
func AllocMem(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", n, err)
	}
	// A child that fork makes must not get copies of pages that a device writes to:
	// the parent would go on with the copy and the device with the original.
	if err := unix.Madvise(b, unix.MADV_DONTFORK); err != nil {
		unix.Munmap(b)
		return nil, fmt.Errorf("keep %d bytes from children: %w", n, err)
	}
	return b, nil
}

// FreeMem gives back what AllocMem returned.
func FreeMem(b []byte) error {
	if err := unix.Munmap(b); err != nil {
		return fmt.Errorf("unmap %d bytes: %w", len(b), err)
	}
	return nil
}
