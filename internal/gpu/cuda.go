//go:build cgo

package gpu

// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
// static int call0(void *f, unsigned v) { return ((int (*)(unsigned))f)(v); }
// static int call_count(void *f, int *n) { return ((int (*)(int *))f)(n); }
// static int call_get(void *f, int *dev, int i) { return ((int (*)(int *, int))f)(dev, i); }
// static int call_text(void *f, char *s, int n, int dev) { return ((int (*)(char *, int, int))f)(s, n, dev); }
// static int call_attr(void *f, int *v, int attr, int dev) { return ((int (*)(int *, int, int))f)(v, attr, dev); }
import "C"

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/rdmatune/rdmatune/internal/pci"
)

// Devices lists the GPUs that the driver has. It loads the driver's library into this
// process and initialises it, which makes no context on any GPU.
func Devices() ([]Device, error) {
	name := C.CString("libcuda.so.1")
	defer C.free(unsafe.Pointer(name))
	lib := C.dlopen(name, C.RTLD_NOW|C.RTLD_LOCAL)
	if lib == nil {
		return nil, fmt.Errorf("no CUDA driver library: %s", C.GoString(C.dlerror()))
	}
	// The library is never closed: the driver does not take that well.
	functions := map[string]unsafe.Pointer{}
	for _, f := range []string{"cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetPCIBusId", "cuDeviceGetAttribute"} {
		symbol := C.CString(f)
		functions[f] = C.dlsym(lib, symbol)
		C.free(unsafe.Pointer(symbol))
		if functions[f] == nil {
			return nil, fmt.Errorf("libcuda.so.1 has no %s", f)
		}
	}
	if rc := C.call0(functions["cuInit"], 0); rc != 0 {
		return nil, fmt.Errorf("cuInit: CUDA error %d", int(rc))
	}
	var n C.int
	if rc := C.call_count(functions["cuDeviceGetCount"], &n); rc != 0 {
		return nil, fmt.Errorf("cuDeviceGetCount: CUDA error %d", int(rc))
	}
	var out []Device
	for i := range min(n, maxDevices) {
		var dev C.int
		if rc := C.call_get(functions["cuDeviceGet"], &dev, i); rc != 0 {
			return out, fmt.Errorf("cuDeviceGet(%d): CUDA error %d", int(i), int(rc))
		}
		text := func(f string) string {
			var b [256]C.char
			if C.call_text(functions[f], &b[0], C.int(len(b)-1), dev) != 0 {
				return ""
			}
			return C.GoString(&b[0])
		}
		attr := func(id C.int) bool {
			var v C.int
			return C.call_attr(functions["cuDeviceGetAttribute"], &v, id, dev) == 0 && v != 0
		}
		out = append(out, Device{
			PCI: pci.Find(strings.ToLower(text("cuDeviceGetPCIBusId"))), Name: text("cuDeviceGetName"),
			DirectRDMA: attr(attrDirectRDMA), DMABuf: attr(attrDMABuf),
		})
	}
	return out, nil
}
