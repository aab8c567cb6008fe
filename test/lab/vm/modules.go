package vm

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// wanted are the modules that the guest loads, in this order, each after those that
// it depends on. crc32_generic comes first because rdma_rxe asks for the algorithm
// by name, which no dependency shows.
var wanted = []string{
	"crc32_generic", "crc32c_generic",
	"virtio_pci", "9p", "9pnet_virtio",
	"e1000e", "veth", "tun", "sch_netem",
	"ib_uverbs", "rdma_rxe",
	"acpi_cpufreq", "cpufreq_powersave", "cpufreq_userspace", "cpufreq_ondemand", "cpufreq_conservative",
}

// moduleOrder returns the files to load, dependencies first, of the modules named.
// Names that have no file in the tree are taken as built in: the guest's own checks
// tell when they are not.
func moduleOrder(tree string, names []string) ([]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, ".ko") {
			files[moduleName(path)] = path
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no modules", tree)
	}
	var order []string
	seen := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		path, ok := files[name]
		if !ok || seen[name] {
			return nil
		}
		seen[name] = true
		needs, err := moduleDepends(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, n := range needs {
			if err := add(n); err != nil {
				return err
			}
		}
		order = append(order, path)
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// moduleDepends reads the "depends" entry of a module's .modinfo section, which is a
// row of NUL-terminated key=value texts.
func moduleDepends(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("no .modinfo section")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for entry := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := bytes.CutPrefix(entry, []byte("depends=")); ok && len(list) > 0 {
			return strings.Split(strings.ReplaceAll(string(list), "-", "_"), ","), nil
		}
	}
	return nil, nil
}
