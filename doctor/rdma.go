package doctor

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
)

const rdmaDir = "/sys/class/infiniband"

// devices says which RDMA devices there are, with firmware and PSID.
func (e *examiner) devices() {
	real := 0
	for _, d := range e.Facts.RDMA {
		if deref(d.Driver) == "soft" {
			continue
		}
		real++
		dir := rdmaDir + "/" + d.Name
		f := Finding{Check: "device", Subject: d.Name, Level: Fine, Message: "RDMA device, driver " + orUnknown(d.Driver)}
		if deref(d.Driver) == "rdma_rxe" {
			f.Level, f.Message = Warning, "software RDMA over an ordinary network device"
			f.Why = "it has the interface of a NIC and none of its speed: good for tests, not for latency"
		}
		for _, file := range []string{"fw_ver", "board_id", "hca_type"} {
			ev, _ := e.read(dir + "/" + file)
			f.Evidence = append(f.Evidence, ev)
		}
		e.add(f)
	}
	if real > 0 {
		return
	}
	ev := Evidence{rdmaDir, "(no device)"}
	if _, err := e.fs.ReadDir(rdmaDir); err != nil {
		ev.Value = reason(err)
	}
	e.add(Finding{
		Check: "device", Subject: "node", Level: Problem, Message: "there is no RDMA device", Evidence: []Evidence{ev},
		Why: "nothing here can be sent by RDMA: programs use TCP, shared memory or NVLink; rdmatune's transport has its software provider (soft0), which is no faster than TCP",
		Do:  "load the NIC's RDMA driver (mlx5_ib, irdma, bnxt_re, efa), or pass the device through to this machine or container",
	})
}

func orUnknown(p *string) string {
	if p == nil || *p == "" {
		return "(unknown)"
	}
	return *p
}

// links checks the ports, the PCI link and the addresses of every NIC.
func (e *examiner) links() {
	for _, d := range e.Facts.RDMA {
		if deref(d.Driver) == "soft" {
			continue
		}
		ports, err := e.fs.Numbered(rdmaDir+"/"+d.Name+"/ports", "")
		if err != nil {
			e.add(Finding{Check: "port", Subject: d.Name, Level: Unknown, Message: "its ports cannot be listed", Evidence: []Evidence{{rdmaDir + "/" + d.Name + "/ports", reason(err)}}})
		}
		for _, port := range ports[:min(len(ports), 16)] {
			e.port(d, port)
		}
		if hardware(d) {
			e.pciLink(d.Name, *d.PCI)
		}
		for _, dev := range d.Netdevs {
			e.mtu(d, dev)
		}
	}
}

func (e *examiner) port(d node.RDMA, port int) {
	dir := fmt.Sprintf("%s/%s/ports/%d", rdmaDir, d.Name, port)
	subject := fmt.Sprintf("%s port %d", d.Name, port)
	state, ok := e.read(dir + "/state")
	phys, _ := e.read(dir + "/phys_state")
	rate, _ := e.read(dir + "/rate")
	f := Finding{Check: "port", Subject: subject, Level: Fine, Message: "active", Evidence: []Evidence{state, phys, rate}}
	switch {
	case !ok:
		f.Level, f.Message = Unknown, "its state cannot be read"
	case !strings.Contains(state.Value, "ACTIVE"):
		f.Level, f.Message = Problem, "the port is not active"
		f.Why, f.Do = "nothing can be sent through it", "check the cable, the other end, and the subnet manager (InfiniBand) or the network device (RoCE)"
	}
	e.add(f)
	if ok && strings.Contains(state.Value, "ACTIVE") && deref(d.LinkLayer) == "Ethernet" {
		e.gids(d, subject, dir)
	}
}

// maxGIDs bounds the entries of a GID table that are looked at.
const maxGIDs = 256

// gids checks that a RoCE port has a RoCE v2 address.
func (e *examiner) gids(d node.RDMA, subject, dir string) {
	f := Finding{Check: "gid", Subject: subject, Level: Problem}
	used, v2 := 0, []string{}
	indices, err := e.fs.Numbered(dir+"/gid_attrs/types", "")
	if err != nil {
		f.Level, f.Message, f.Evidence = Unknown, "its GID table cannot be read", []Evidence{{dir + "/gid_attrs/types", reason(err)}}
		e.add(f)
		return
	}
	for _, i := range indices[:min(len(indices), maxGIDs)] {
		kind, err := e.fs.ReadString(fmt.Sprintf("%s/gid_attrs/types/%d", dir, i))
		if err != nil {
			continue // an unused entry reads EINVAL
		}
		used++
		if strings.Contains(kind, "v2") {
			v2 = append(v2, strconv.Itoa(i))
		}
	}
	f.Evidence = []Evidence{{dir + "/gid_attrs/types", fmt.Sprintf("%s in use, RoCE v2 at %s", param.Count(used, "entry"), orNone(strings.Join(v2[:min(len(v2), 8)], ", ")))}}
	switch {
	case used == 0:
		f.Message, f.Why, f.Do = "the GID table is empty", "the port has no address", "give the network device an address and bring it up"
	case len(v2) == 0:
		f.Level, f.Message = Warning, "no RoCE v2 address, only v1"
		f.Why, f.Do = "RoCE v1 is not routed, and most programs ask for v2", "give the network device an IP address"
	default:
		f.Level, f.Message = Fine, "RoCE v2 addresses"
	}
	e.add(f)
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

// pciLink compares a function's PCI link with what it can do.
func (e *examiner) pciLink(subject, function string) {
	dir := "/sys/bus/pci/devices/" + function
	speed, ok1 := e.read(dir + "/current_link_speed")
	width, ok2 := e.read(dir + "/current_link_width")
	most, ok3 := e.read(dir + "/max_link_speed")
	wide, ok4 := e.read(dir + "/max_link_width")
	f := Finding{Check: "pci-link", Subject: subject, Level: Fine, Message: "PCI link as fast and as wide as the device", Evidence: []Evidence{speed, most, width, wide}}
	a, errA := strconv.ParseFloat(firstWord(speed.Value), 64)
	b, errB := strconv.ParseFloat(firstWord(most.Value), 64)
	w, errC := strconv.Atoi(firstWord(width.Value))
	x, errD := strconv.Atoi(firstWord(wide.Value))
	switch {
	case !ok1 || !ok2 || !ok3 || !ok4 || errA != nil || errB != nil || errC != nil || errD != nil:
		f.Level, f.Message = Unknown, "its PCI link is not told"
	case a < b || w < x:
		f.Level, f.Message = Warning, fmt.Sprintf("PCI link below the device: %s of %s GT/s, x%d of x%d", firstWord(speed.Value), firstWord(most.Value), w, x)
		f.Why = "bandwidth is lost, and large messages hold up small ones longer"
		f.Do = "check the slot, the riser and the firmware's link settings; virtual machines may show a false width"
	}
	e.add(f)
}

func firstWord(s string) string {
	word, _, _ := strings.Cut(s, " ")
	return word
}

// mtu notes a network device whose MTU is below what RoCE can use.
func (e *examiner) mtu(d node.RDMA, dev string) {
	if deref(d.LinkLayer) == "InfiniBand" || dev == "lo" {
		return
	}
	ev, ok := e.read("/sys/class/net/" + dev + "/mtu")
	n, err := strconv.Atoi(ev.Value)
	f := Finding{Check: "mtu", Subject: d.Name + " on " + dev, Level: Fine, Message: "MTU for the largest path MTU (4096)", Evidence: []Evidence{ev}}
	switch {
	case !ok || err != nil:
		f.Level, f.Message = Unknown, "the MTU cannot be read"
	case n < 4200:
		f.Level, f.Message = Warning, fmt.Sprintf("MTU %d: the path MTU is below 4096", n)
		f.Why, f.Do = "larger messages take more packets; small ones do not care", "set the MTU to 4200 or 9000 on every device and switch of the path, if bandwidth matters"
	}
	e.add(f)
}

// library looks for the verbs library and its providers.
func (e *examiner) library() {
	var found, providers []string
	for _, dir := range []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib/x86_64-linux-gnu", "/usr/local/lib"} {
		names, err := e.fs.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, n := range names {
			if strings.HasPrefix(n, "libibverbs.so") {
				found = append(found, path.Join(dir, n))
			}
		}
		plugins, err := e.fs.ReadDir(dir + "/libibverbs")
		for _, n := range plugins {
			if name, _, ok := strings.Cut(strings.TrimPrefix(n, "lib"), "-rdmav"); err == nil && ok && !slices.Contains(providers, name) {
				providers = append(providers, name)
			}
		}
	}
	slices.Sort(providers)
	if e.NoVerbs {
		e.add(Finding{
			Check: "verbs-build", Subject: "rdmatune", Level: Problem, Message: "this rdmatune is built without verbs (cgo was off)",
			Why: "its bench, tune and guards open no RDMA device but soft0, and what devices grant cannot be tried", Do: "use a build with CGO_ENABLED=1",
		})
	}
	f := Finding{
		Check: "verbs-library", Subject: "node", Level: Fine, Message: "libibverbs and its providers",
		Evidence: []Evidence{{"libibverbs", orNone(strings.Join(found[:min(len(found), 3)], ", "))}, {"providers", clip(orNone(strings.Join(providers, ", ")))}},
	}
	switch {
	case len(found) == 0 && e.Node.Kind() != node.Local:
		f.Level, f.Message = Unknown, fmt.Sprintf("a %s node does not hold its libraries", e.Node.Kind())
	case len(found) == 0:
		f.Level, f.Message = Problem, "libibverbs is not installed"
		f.Why, f.Do = "no program can use an RDMA device without it", "install libibverbs1 and ibverbs-providers (rdma-core)"
	case len(providers) == 0:
		f.Level, f.Message = Problem, "libibverbs has no providers"
		f.Why, f.Do = "it finds no device without the provider of its driver", "install ibverbs-providers (rdma-core)"
	}
	e.add(f)
}
