package transport

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/internal/smallfile"
)

const (
	maxDeviceFile = 4 << 10
	deviceVersion = 1
)

// A deviceFile is what was found out about a device, as it is kept in a file. It
// counts only for the very device, firmware and kind of queue pair that it names.
type deviceFile struct {
	Version  int    `json:"version"`
	NodeGUID string `json:"node_guid"` // 16 hexadecimal digits
	VendorID uint32 `json:"vendor_id"`
	PartID   uint32 `json:"part_id"`
	Firmware string `json:"firmware"`
	QPType   string `json:"qp_type"`
	Segments int    `json:"segments"` // of a send work request
	Inline   int    `json:"inline"`   // bytes
}

// identify returns the file's contents for a device that grants inline bytes.
func identify(a verbs.DeviceAttr, inline int) deviceFile {
	return deviceFile{
		Version: deviceVersion, NodeGUID: fmt.Sprintf("%016x", a.NodeGUID), VendorID: a.VendorID,
		PartID: a.VendorPartID, Firmware: a.Firmware, QPType: "rc", Segments: 1, Inline: inline,
	}
}

// inlineLimit returns the device's inline limit, from dir ("" = nowhere) or by
// probing. Whatever is wrong with the file only costs a probe; err beside a limit
// says that it could not be kept.
func inlineLimit(dir string, dev verbs.Device, pd verbs.PD, cq verbs.CQ) (limit int, kept error, err error) {
	a := dev.Attr()
	// A device that cannot be told from another of its kind is probed.
	if dir == "" || a.NodeGUID == 0 {
		limit, err = verbs.ProbeInline(pd, cq)
		return limit, nil, err
	}
	path := filepath.Join(dir, fmt.Sprintf("%016x.json", a.NodeGUID))
	f, rerr := readDevice(path)
	if rerr == nil && f == identify(a, f.Inline) {
		return f.Inline, nil, nil
	}
	if limit, err = verbs.ProbeInline(pd, cq); err != nil {
		return 0, nil, err
	}
	return limit, writeDevice(path, identify(a, limit)), nil
}

// readDevice reads a device file that nobody but root and this user may have written.
func readDevice(path string) (deviceFile, error) {
	b, err := smallfile.Read(path, maxDeviceFile, smallfile.Trusted)
	if err != nil {
		return deviceFile{}, err
	}
	d, err := parseDevice(b)
	if err != nil {
		return deviceFile{}, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

func parseDevice(b []byte) (deviceFile, error) {
	var d deviceFile
	if err := json.Unmarshal(b, &d); err != nil {
		return deviceFile{}, err
	}
	if d.Version != deviceVersion || d.Inline < 0 || d.Inline > verbs.MaxProbedInline {
		return deviceFile{}, fmt.Errorf("version %d, inline %d", d.Version, d.Inline)
	}
	return d, nil
}

func writeDevice(path string, d deviceFile) error {
	b, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return renameio.WriteFile(path, append(b, '\n'), 0o644, renameio.IgnoreUmask(), renameio.WithTempDir(filepath.Dir(path)))
}

// cacheDir returns where what is found out about devices is kept: what the options
// say, else below root's run directory, since another user's cannot be trusted.
func cacheDir(o Options) string {
	if o.CacheDir != "" || o.RunDir == "" {
		return o.CacheDir
	}
	var st unix.Stat_t
	if err := unix.Stat(o.RunDir, &st); err != nil || st.Uid != 0 || st.Mode&0o022 != 0 {
		return ""
	}
	return filepath.Join(o.RunDir, "devices")
}
