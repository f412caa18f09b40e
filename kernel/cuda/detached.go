package cuda

import (
	"encoding/binary"
	"sync"
	"unsafe"
)

// H200 holds the properties of the GPU that the kernels are written for, for detached devices.
var H200 = Properties{
	Name: "detached H200", Major: 9, Minor: 0, SMs: 132, L2Bytes: 50 << 20, SharedOptinBytes: 232448,
	SharedPerSMBytes: 233472, RegistersPerSM: 65536, MaxThreadsPerBlock: 1024, MemoryBytes: 141_000_000_000,
	ClusterLaunch: true,
}

// OpenDetached makes a device without a GPU. Launchers check their arguments as on a GPU with these properties; memory
// has addresses but no contents, and launches and copies have no effect. It is used in tests of launchers' checks, to
// compute how much memory a model would need, and in 'sparrow explain' to list the weights that a GPU does not support.
func OpenDetached(p Properties) *Device { return openDetached(p, p.MemoryBytes) }

// Detached returns a device without a GPU that has the properties of this device and the same free memory.
func (d *Device) Detached() (*Device, error) {
	free, _, err := d.MemoryFree()
	if err != nil {
		return nil, err
	}
	copied := openDetached(d.props, free)
	copied.portable = d.portable
	return copied, nil
}

func openDetached(p Properties, free int64) *Device {
	next := uintptr(detachedBase)  // the next address or handle
	taken := map[uintptr]uintptr{} // bytes of device memory by address
	used := uintptr(0)
	take := func(bytes uintptr) uintptr {
		at := next
		next += (bytes + detachedAlign - 1) &^ (detachedAlign - 1)
		return at
	}
	var held [][]byte // memory of all host allocations
	var mu sync.Mutex // guards the variables above, because several goroutines upload weights
	answer := func(s symbol, args []uintptr) int {
		mu.Lock()
		defer mu.Unlock()
		switch s {
		case cuMemAlloc:
			at := take(args[1])
			taken[at] = args[1]
			used += args[1]
			store(args[0], at)
		case cuMemFree:
			used -= taken[args[0]]
			delete(taken, args[0])
		case cuStreamCreateWithPriority, cuEventCreate, cuModuleLoadDataEx, cuModuleGetFunction,
			cuGraphInstantiateWithFlags:
			store(args[0], take(1))
		case cuMemHostAlloc:
			held = append(held, make([]byte, args[1]))
			store(args[0], uintptr(unsafe.Pointer(&held[len(held)-1][0])))
		case cuFuncGetAttribute:
			// All other attributes are 0: no launcher's check depends on static shared or local memory.
			if args[1] == funcMaxThreads {
				store(args[0], maxBlockThreads)
			}
		case cuStreamEndCapture:
			store(args[1], take(1))
		case cuTensorMapEncodeTiled:
			m := MapSpec{Base: Ptr(args[3])}
			for i := range args[2] {
				m.Dims = append(m.Dims, fetch(args[4]+8*i))
				if i > 0 {
					m.Strides = append(m.Strides, fetch(args[5]+8*(i-1)))
				}
			}
			t := m.plain()
			for i := range len(t) / 8 {
				store(args[0]+8*uintptr(i), uintptr(binary.LittleEndian.Uint64(t[8*i:])))
			}
		case cuMemGetInfo:
			store(args[0], uintptr(max(free-int64(used), 0)))
			store(args[1], uintptr(p.MemoryBytes))
		}
		return 0
	}
	d := &Device{driver: &driver{devices: 1, answer: answer}, context: 1, props: p,
		portable: p.runs() && !p.native()}
	d.limits.chip = p.Hardware()
	return d
}

// Watch calls see with every launch, before it is enqueued, and with the arguments of its kernel. Tests on machines
// without a GPU use it to compare the launches of operations. Tensor maps of a detached device hold what they were
// made from, see [TensorMap.Plain].
func (d *Device) Watch(see func(kernel string, l Launch, args any)) { d.watch = see }

const (
	detachedBase    = 1 << 40 // larger than any offset, so that an offset used as an address is detected
	detachedAlign   = 256     // alignment of cuMemAlloc in bytes
	maxBlockThreads = 1024
)

// fetch reads a word of a frame, see store.
func fetch(address uintptr) uint64 { return **(**uint64)(unsafe.Pointer(&address)) }

// store writes a result of the driver to the word at an address in a frame.
func store(address, v uintptr) {
	// A frame is on the heap and does not move. The address is read through a pointer to the variable, so that vet's
	// check for misuse of unsafe.Pointer can stay enabled.
	**(**uint64)(unsafe.Pointer(&address)) = uint64(v)
}
