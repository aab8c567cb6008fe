//go:build !cgo

package gpu

import "errors"

// Devices needs cgo.
func Devices() ([]Device, error) {
	return nil, errors.New("built without cgo: the GPU driver cannot be asked")
}
