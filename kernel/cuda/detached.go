package cuda

import (
	"sync"
	"unsafe"
)

// H200 holds the properties of the GPU that the kernels are written for, for detached devices.
var H200 = Properties{
	Name: "detached H200", Major: 9, Minor: 0, SMs: 132, L2Bytes: 50 << 20, SharedOptinBytes: 232448,
	SharedPerSMBytes: 233472, RegistersPerSM: 65536, MaxThreadsPerBlock: 1024, MemoryBytes: 141_000_000_000,
	ClusterLaunch: true,
}

// OpenDetached makes a device without a GPU. Launchers check their arguments as on a GPU of these properties; memory
// has addresses and no contents, and launches and copies have no effect. With it, tests on machines without a GPU find
// the arguments that launchers refuse, an engine finds how much memory a model would take, and 'sparrow explain' which
// weights a GPU refuses.
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
	var held [][]byte // host memory
	var mu sync.Mutex // weights are uploaded by several goroutines
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
			// No kernel of ours uses static shared or local memory that a launcher's check depends on.
			if args[1] == funcMaxThreads {
				store(args[0], maxBlockThreads)
			}
		case cuStreamEndCapture:
			store(args[1], take(1))
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

// Watch makes see get every launch before it is enqueued, with the arguments of its kernel. With it, tests on machines
// without a GPU compare what operations would launch.
func (d *Device) Watch(see func(kernel string, l Launch, args any)) { d.watch = see }

const (
	detachedBase    = 1 << 40 // larger than any offset from zero, so that such mistakes are detected
	detachedAlign   = 256     // of cuMemAlloc
	maxBlockThreads = 1024
)

// store writes a result of the driver to the word of a frame whose address it was given.
func store(address, v uintptr) {
	// A frame is on the heap and does not move; reading through a pointer to the variable keeps vet's misuse check
	// meaningful elsewhere.
	**(**uint64)(unsafe.Pointer(&address)) = uint64(v)
}
