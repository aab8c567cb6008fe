package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rdmatune/rdmatune/audit/live"
	"github.com/rdmatune/rdmatune/node"
	"github.com/rdmatune/rdmatune/param"
)

// environment says whether this is hardware, a virtual machine or a container, and what
// that means for a hint.
func (e *examiner) environment() {
	vendor, _ := e.read("/sys/class/dmi/id/sys_vendor")
	product, _ := e.read("/sys/class/dmi/id/product_name")
	f := Finding{Check: "environment", Subject: "node", Level: Fine, Message: "hardware", Evidence: []Evidence{vendor, product}}
	switch {
	case e.Facts.Simulated:
		f.Level, f.Message = Unknown, "a simulated node: nothing here says anything of hardware"
	case e.Facts.Virtualised == nil:
		f.Level, f.Message = Unknown, "whether this is a virtual machine could not be told"
	case *e.Facts.Virtualised != "":
		f.Level, f.Message = Warning, "a virtual machine ("+*e.Facts.Virtualised+")"
		f.Why = "a hypervisor may take a setting and not act on it: frequency and idle states are the host's, interrupts take a detour"
		f.Do = "believe only what is measured"
		for _, d := range e.Facts.RDMA {
			if hardware(d) {
				f.Message += "; " + d.Name + " is passed through to it"
				f.Evidence = append(f.Evidence, Evidence{rdmaDir + "/" + d.Name, "PCI function " + *d.PCI + ", driver " + orUnknown(d.Driver)})
				f.Why += "; a passed-through NIC or its firmware may take a hint and not act on it"
			}
		}
	}
	e.add(f)
	if ev, ok := e.container(); ok {
		e.add(Finding{
			Check: "container", Subject: "rdmatune", Level: Warning, Message: "rdmatune runs in a container", Evidence: []Evidence{ev},
			Why: "it sees the container's processes and network devices only, and the kernel's settings are shared with everybody on the machine",
			Do:  "run it on the host, or in a container with the host's pid and network namespaces",
		})
	}
}

// container looks for the marks that container engines leave.
func (e *examiner) container() (Evidence, bool) {
	for _, file := range []string{"/.dockerenv", "/run/.containerenv", "/run/systemd/container"} {
		if e.fs.Exists(file) {
			return Evidence{file, "exists"}, true
		}
	}
	if ev, ok := e.read("/proc/self/cgroup"); ok {
		for _, mark := range []string{"/docker", "/kubepods", "/libpod", "/lxc", "/containerd"} {
			if strings.Contains(ev.Value, mark) {
				return ev, true
			}
		}
	}
	return Evidence{}, false
}

// sharing says who else uses each NIC: beside the workloads on it that verdicts are
// asked for, if there are any.
func (e *examiner) sharing() {
	for _, d := range e.Facts.RDMA {
		if deref(d.Driver) == "soft" {
			continue
		}
		var on []*Workload
		for i := range e.Workloads {
			if w := &e.Workloads[i]; w.Device == d.Name {
				on = append(on, w)
			}
		}
		e.add(e.shared(d, on...))
	}
}

// shared says who uses d beside workloads. Without any, the first user is nobody's
// other.
func (e *examiner) shared(d node.RDMA, workloads ...*Workload) Finding {
	f := Finding{Check: "sharing", Subject: d.Name, Level: Fine, Message: "nobody else is seen to use it"}
	var parts []string
	if d.VFs != nil && *d.VFs > 0 {
		parts = append(parts, param.Count(*d.VFs, "virtual function"))
		f.Evidence = append(f.Evidence, Evidence{"/sys/bus/pci/devices/" + deref(d.PCI) + "/sriov_numvfs", fmt.Sprint(*d.VFs)})
	}
	if d.PhysFn != nil {
		parts = append(parts, "it is a virtual function itself")
		f.Evidence = append(f.Evidence, Evidence{"/sys/bus/pci/devices/" + deref(d.PCI) + "/physfn", *d.PhysFn})
	}
	users := Users(e.View, d.Name, workloads...)
	for _, u := range users {
		f.Evidence = append(f.Evidence, Evidence{u.Name, u.Processes})
	}
	others := len(users)
	if len(workloads) == 0 {
		others = max(others-1, 0)
	}
	if others > 0 {
		parts = append(parts, "queue pairs of "+param.Count(others, "other user"))
	}
	switch {
	case len(parts) > 0:
		f.Level, f.Message = Warning, "shared: "+strings.Join(parts, ", ")
		f.Why = "its queues, its link and its caches are not one workload's: a hint cannot keep others' traffic out of the way"
		f.Do = "give the workload a NIC of its own, or leave its hint at 0"
	case e.View.Unobservable != "":
		f.Level, f.Message = Unknown, "who else uses it is not observable"
		f.Evidence = append(f.Evidence, Evidence{"RDMA netlink", e.View.Unobservable})
	}
	return f
}

// A User is somebody with connected queue pairs on a device.
type User struct {
	Name      string // "user 1000", or a kernel module
	Processes string // "trainer (4001): 6 queue pairs"
}

// Users lists who has connected queue pairs on a device beside workloads, by name. The
// management queue pairs that every port has are nobody's.
func Users(v *live.View, device string, workloads ...*Workload) []User {
	users := map[string][]string{}
	for i := range v.Processes {
		p := &v.Processes[i]
		n := connected(p, device)
		if n == 0 || slices.ContainsFunc(workloads, func(w *Workload) bool { return w.Owns(p) }) || p.Who == "kernel module" && p.Comm == "ib_core" {
			continue
		}
		user := p.Comm
		if p.UID != nil {
			user = fmt.Sprintf("user %d", *p.UID)
		}
		users[user] = append(users[user], fmt.Sprintf("%s (%d): %s", p.Comm, p.PID, param.Count(n, "queue pair")))
	}
	var out []User
	for user, who := range users {
		out = append(out, User{user, clip(strings.Join(who[:min(len(who), 4)], ", "))})
	}
	slices.SortFunc(out, func(a, b User) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// connected counts a process's queue pairs on a device that carry traffic.
func connected(p *live.Process, device string) int {
	n := 0
	for _, u := range p.Devices {
		if u.Device != device {
			continue
		}
		for _, q := range u.QueuePairs {
			if q.Type != "SMI" && q.Type != "GSI" && (q.State == "RTS" || q.State == "RTR" || q.State == "SQD") {
				n++
			}
		}
	}
	return n
}
