package doctor

import (
	"fmt"
	"strconv"

	"github.com/rdmatune/rdmatune/drivers/verbs"
	"github.com/rdmatune/rdmatune/param"
)

// deviceFeatures opens each device and tries what a low-latency path needs of it.
func (e *examiner) deviceFeatures() {
	for _, d := range e.Facts.RDMA {
		if deref(d.Driver) == "soft" {
			continue
		}
		if e.Verbs == nil {
			e.add(Finding{Check: "features", Subject: d.Name, Level: Unknown, Message: "inline size, depth and moderation are found out by trying, which needs the device itself"})
			continue
		}
		f := Finding{Check: "features", Subject: d.Name, Level: Fine}
		dev, err := e.Verbs.Open(d.Name)
		if err != nil {
			f.Level, f.Message, f.Evidence = Problem, "the device cannot be opened", []Evidence{{"ibv_open_device", clip(err.Error())}}
			f.Why, f.Do = "no program of this user can use it", "check the verbs library, its provider, and the permissions of /dev/infiniband"
			e.add(f)
			continue
		}
		inline, err := probeInline(dev)
		a := dev.Attr()
		if cerr := dev.Close(); err == nil {
			err = cerr
		}
		f.Evidence = []Evidence{
			{"inline, by trying", strconv.Itoa(inline) + " B"}, {"max_qp_wr", strconv.Itoa(a.MaxQPWR)},
			{"completion vectors", strconv.Itoa(a.CompVectors)}, {"completion queue moderation", map[bool]string{true: "yes", false: "no"}[a.Moderation]},
		}
		f.Message = fmt.Sprintf("inline up to %d B, queues up to %d, %s", inline, a.MaxQPWR, param.Count(a.CompVectors, "completion vector"))
		switch {
		case err != nil:
			f.Level, f.Message = Unknown, "the inline size could not be found out"
			f.Evidence = append(f.Evidence, Evidence{"ibv_create_qp", clip(err.Error())})
		case inline < 16:
			f.Level = Warning
			f.Message += ": hardly any message can be sent inline"
			f.Why = "each small message costs the NIC a read of host memory before it is sent"
		}
		e.add(f)
	}
}

// probeInline finds the largest inline send that a device grants.
func probeInline(dev verbs.Device) (inline int, err error) {
	pd, err := dev.AllocPD()
	if err != nil {
		return 0, err
	}
	defer pd.Close()
	cq, err := dev.NewCQ(1, nil, 0)
	if err != nil {
		return 0, err
	}
	defer cq.Close()
	return verbs.ProbeInline(pd, cq)
}
