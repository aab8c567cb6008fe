// Package gpu asks the GPU driver for what no file tells: whether a GPU's memory can be
// registered with a NIC. libcuda is opened at run time; a machine without it, and a
// program built without cgo, says so.
package gpu

// A Device is one GPU as its driver tells it.
type Device struct {
	PCI  string // "0000:1b:00.0"
	Name string
	// DirectRDMA is whether the driver grants GPUDirect RDMA through a peer-memory module.
	DirectRDMA bool
	// DMABuf is whether it exports memory as a dma-buf, which needs no such module.
	DMABuf bool
}

// maxDevices bounds the GPUs of a machine.
const maxDevices = 64

// Attributes of a device in the CUDA driver API (cuda.h, CUdevice_attribute).
const (
	attrDirectRDMA = 116 // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED
	attrDMABuf     = 124 // CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED
)
