package doctor

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/rdmatune/rdmatune/internal/printable"
	"github.com/rdmatune/rdmatune/node"
)

// maxValue bounds a value shown as evidence, in bytes.
const maxValue = 200

// clip makes a text from a file fit to be shown.
func clip(text string) string {
	return printable.Clip(strings.NewReplacer("\n", " ", "\t", " ").Replace(text), maxValue)
}

// reason is why a file could not be read.
func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return "(" + err.Error() + ")"
}

func deref(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

// hardware reports whether a device is a NIC's and no software device.
func hardware(d node.RDMA) bool {
	driver := deref(d.Driver)
	return d.PCI != nil && driver != "soft" && driver != "rdma_rxe" && driver != "siw"
}

// why is the reason that the fact at path is null.
func (e *examiner) why(path string) string {
	if why := e.Facts.Why[path]; why != "" {
		return clip(why)
	}
	return "this node does not say"
}
