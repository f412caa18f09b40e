package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"
)

// symbol is one function of the driver library.
type symbol int

const (
	cuInit symbol = iota
	cuDriverGetVersion
	cuGetErrorName
	cuGetErrorString
	cuDeviceGetCount
	cuDeviceGet
	cuDeviceGetName
	cuDeviceTotalMem
	cuDeviceGetAttribute
	cuDevicePrimaryCtxRetain
	cuDevicePrimaryCtxRelease
	cuCtxSetCurrent
	cuCtxSynchronize
	cuDeviceCanAccessPeer
	cuCtxEnablePeerAccess
	cuMemGetInfo
	cuMemAlloc
	cuMemFree
	cuMemHostAlloc
	cuMemFreeHost
	cuMemHostRegister
	cuMemHostUnregister
	cuMemcpyHtoDAsync
	cuMemcpyDtoHAsync
	cuMemcpyDtoDAsync
	cuMemsetD8Async
	cuMemsetD32Async
	cuStreamCreateWithPriority
	cuStreamDestroy
	cuStreamSynchronize
	cuStreamWaitEvent
	cuStreamQuery
	cuStreamWriteValue32
	cuStreamWaitValue32
	cuEventCreate
	cuEventRecord
	cuEventSynchronize
	cuEventElapsedTime
	cuEventDestroy
	cuModuleLoadDataEx
	cuModuleUnload
	cuModuleGetFunction
	cuModuleGetGlobal
	cuFuncGetAttribute
	cuFuncSetAttribute
	cuLaunchKernelEx
	cuStreamBeginCapture
	cuStreamEndCapture
	cuGraphInstantiateWithFlags
	cuGraphLaunch
	cuGraphDestroy
	cuGraphExecDestroy
	cuTensorMapEncodeTiled
	cuDeviceGetDevResource
	cuDevSmResourceSplitByCount
	cuDevResourceGenerateDesc
	cuGreenCtxCreate
	cuGreenCtxDestroy
	cuGreenCtxStreamCreate
	cuCtxFromGreenCtx
	symbolCount
)

// symbolNames are the names of the functions in the library. A suffix such as _v2 is the revision that current CUDA
// headers use for the name without suffix.
var symbolNames = [symbolCount]string{
	cuInit:                      "cuInit",
	cuDriverGetVersion:          "cuDriverGetVersion",
	cuGetErrorName:              "cuGetErrorName",
	cuGetErrorString:            "cuGetErrorString",
	cuDeviceGetCount:            "cuDeviceGetCount",
	cuDeviceGet:                 "cuDeviceGet",
	cuDeviceGetName:             "cuDeviceGetName",
	cuDeviceTotalMem:            "cuDeviceTotalMem_v2",
	cuDeviceGetAttribute:        "cuDeviceGetAttribute",
	cuDevicePrimaryCtxRetain:    "cuDevicePrimaryCtxRetain",
	cuDevicePrimaryCtxRelease:   "cuDevicePrimaryCtxRelease_v2",
	cuCtxSetCurrent:             "cuCtxSetCurrent",
	cuCtxSynchronize:            "cuCtxSynchronize",
	cuDeviceCanAccessPeer:       "cuDeviceCanAccessPeer",
	cuCtxEnablePeerAccess:       "cuCtxEnablePeerAccess",
	cuMemGetInfo:                "cuMemGetInfo_v2",
	cuMemAlloc:                  "cuMemAlloc_v2",
	cuMemFree:                   "cuMemFree_v2",
	cuMemHostAlloc:              "cuMemHostAlloc",
	cuMemFreeHost:               "cuMemFreeHost",
	cuMemHostRegister:           "cuMemHostRegister_v2",
	cuMemHostUnregister:         "cuMemHostUnregister",
	cuMemcpyHtoDAsync:           "cuMemcpyHtoDAsync_v2",
	cuMemcpyDtoHAsync:           "cuMemcpyDtoHAsync_v2",
	cuMemcpyDtoDAsync:           "cuMemcpyDtoDAsync_v2",
	cuMemsetD8Async:             "cuMemsetD8Async",
	cuMemsetD32Async:            "cuMemsetD32Async",
	cuStreamCreateWithPriority:  "cuStreamCreateWithPriority",
	cuStreamDestroy:             "cuStreamDestroy_v2",
	cuStreamSynchronize:         "cuStreamSynchronize",
	cuStreamWaitEvent:           "cuStreamWaitEvent",
	cuStreamQuery:               "cuStreamQuery",
	cuStreamWriteValue32:        "cuStreamWriteValue32_v2",
	cuStreamWaitValue32:         "cuStreamWaitValue32_v2",
	cuEventCreate:               "cuEventCreate",
	cuEventRecord:               "cuEventRecord",
	cuEventSynchronize:          "cuEventSynchronize",
	cuEventElapsedTime:          "cuEventElapsedTime",
	cuEventDestroy:              "cuEventDestroy_v2",
	cuModuleLoadDataEx:          "cuModuleLoadDataEx",
	cuModuleUnload:              "cuModuleUnload",
	cuModuleGetFunction:         "cuModuleGetFunction",
	cuModuleGetGlobal:           "cuModuleGetGlobal_v2",
	cuFuncGetAttribute:          "cuFuncGetAttribute",
	cuFuncSetAttribute:          "cuFuncSetAttribute",
	cuLaunchKernelEx:            "cuLaunchKernelEx",
	cuStreamBeginCapture:        "cuStreamBeginCapture_v2",
	cuStreamEndCapture:          "cuStreamEndCapture",
	cuGraphInstantiateWithFlags: "cuGraphInstantiateWithFlags",
	cuGraphLaunch:               "cuGraphLaunch",
	cuGraphDestroy:              "cuGraphDestroy",
	cuGraphExecDestroy:          "cuGraphExecDestroy",
	cuTensorMapEncodeTiled:      "cuTensorMapEncodeTiled",
	cuDeviceGetDevResource:      "cuDeviceGetDevResource",
	cuDevSmResourceSplitByCount: "cuDevSmResourceSplitByCount",
	cuDevResourceGenerateDesc:   "cuDevResourceGenerateDesc",
	cuGreenCtxCreate:            "cuGreenCtxCreate",
	cuGreenCtxDestroy:           "cuGreenCtxDestroy",
	cuGreenCtxStreamCreate:      "cuGreenCtxStreamCreate",
	cuCtxFromGreenCtx:           "cuCtxFromGreenCtx",
}

// driver holds the addresses of the functions of the loaded library. There is at most one in a process, and it is never
// unloaded.
type driver struct {
	address [symbolCount]uintptr
	version int // 1000*major + 10*minor of the CUDA version the driver supports
	devices int
	// answer is called instead of the library for a detached device ([OpenDetached]); otherwise nil.
	answer func(s symbol, args []uintptr) int
}

// invoke calls one driver function and returns its status.
func (d *driver) invoke(s symbol, args []uintptr) int {
	if d.answer != nil {
		return d.answer(s, args)
	}
	return int(int32(invoke(d.address[s], args)))
}

// maxDriverArguments is the maximum number of arguments of a driver function, cuTensorMapEncodeTiled.
const maxDriverArguments = 12

// frame is memory that a driver call reads or writes by address: results, launch configurations, argument blocks.
// Frames are on the heap, so that their addresses do not change during the call. They are reused, so that calls do not
// allocate after warm-up.
type frame struct {
	args   [maxDriverArguments]uintptr
	out    [4]uint64
	config launchConfig
	attrs  [maxLaunchAttributes]launchAttribute
	tensor mapFrame
	params [1]uintptr // kernelParams of a launch: one pointer, to block
	block  [maxArgumentBytes]byte
}

var frames = sync.Pool{New: func() any { return new(frame) }}

// slot returns the address of one result word of the frame.
func (f *frame) slot(i int) uintptr { return uintptr(unsafe.Pointer(&f.out[i])) }

var (
	loadOnce   sync.Once
	loaded     *driver
	loadFailed error
)

// load returns the process's driver. The first call loads and initialises the library, and later calls return the same
// result. A driver that is installed after the first call is found only by a new process.
func load() (*driver, error) {
	loadOnce.Do(func() { loaded, loadFailed = openDriver() })
	return loaded, loadFailed
}

// openDriver loads the library, resolves every symbol and counts the devices.
func openDriver() (*driver, error) {
	lib, err := openLibrary("libcuda.so.1")
	if err != nil {
		return nil, err
	}
	d := &driver{}
	for s, name := range symbolNames {
		if d.address[s], err = lib.symbol(name); err != nil {
			return nil, &Unavailable{
				Reason: fmt.Sprintf("libcuda.so.1 has no %s: %v", name, err),
				Try:    "install NVIDIA driver 575 or newer (CUDA 12.9)" + orCPU,
			}
		}
	}
	f := frames.Get().(*frame)
	defer frames.Put(f)
	if err := d.call(f, cuInit, 0); err != nil {
		var status *DriverError
		absent := errors.As(err, &status) && (status.Code == codeNoDevice || status.Code == codeStubLibrary)
		return nil, &Unavailable{Reason: err.Error(), Try: "check the GPU with nvidia-smi" + orCPU, Absent: absent}
	}
	if err := d.call(f, cuDriverGetVersion, f.slot(0)); err != nil {
		return nil, err
	}
	d.version = int(int32(f.out[0]))
	if d.version < minDriver {
		return nil, oldDriver(d.version)
	}
	if err := d.call(f, cuDeviceGetCount, f.slot(0)); err != nil {
		return nil, err
	}
	d.devices = int(int32(f.out[0]))
	if d.devices == 0 {
		return nil, &Unavailable{Reason: "the driver reports no device",
			Try: "check the GPU with nvidia-smi" + orCPU, Absent: true}
	}
	return d, nil
}

// minDriver is the oldest CUDA version of a driver that the kernels run on: 1000*major + 10*minor.
const minDriver = 12090

// oldDriver returns the error for a driver whose CUDA version is too old.
func oldDriver(version int) *Unavailable {
	text := func(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }
	return &Unavailable{Reason: fmt.Sprintf("the NVIDIA driver is for CUDA %s, but the kernels need %s", text(version),
		text(minDriver)), Try: "install driver 575 or newer" + orCPU}
}

// call runs one driver function and turns a status other than success into a *DriverError. The arguments are copied
// into the frame, so that the variadic slice stays on the caller's stack. Addresses in the arguments must point to
// memory that does not move: a frame, the driver's own memory, or Go memory that the caller has pinned.
func (d *driver) call(f *frame, s symbol, args ...uintptr) error {
	n := copy(f.args[:], args)
	code := d.invoke(s, f.args[:n])
	if code == 0 {
		return nil
	}
	return d.failure(f, s, code, args)
}

// failure makes a DriverError with the driver's name and text for a code. It copies args, because callers keep them on
// the stack.
func (d *driver) failure(f *frame, s symbol, code int, args []uintptr) *DriverError {
	e := &DriverError{Call: symbolNames[s], Args: append([]uintptr(nil), args...), Code: code, Name: "unknown",
		Text: "no description"}
	for sym, dst := range map[symbol]*string{cuGetErrorName: &e.Name, cuGetErrorString: &e.Text} {
		f.out[0] = 0
		f.args[0], f.args[1] = uintptr(code), f.slot(0)
		if d.invoke(sym, f.args[:2]) == 0 && f.out[0] != 0 {
			*dst = cString(uintptr(f.out[0]))
		}
	}
	return e
}

// cString copies a NUL-terminated string in the driver's static memory, at most 1 KiB.
func cString(address uintptr) string {
	// The address comes from the library and points outside the Go heap, so the rules for Go pointers do not apply. It
	// is read through a pointer to the variable, so that vet's check for misuse of unsafe.Pointer can stay enabled.
	p := *(**byte)(unsafe.Pointer(&address))
	n := 0
	for n < 1024 && *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

// do runs one driver function with the device's context current. A context is current for an operating-system thread,
// so the goroutine is locked to its thread for the two driver calls.
func (d *Device) do(f *frame, s symbol, args ...uintptr) error {
	if d.context == 0 {
		return ErrClosed
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f.args[0] = d.context
	if code := d.driver.invoke(cuCtxSetCurrent, f.args[:1]); code != 0 {
		return d.driver.failure(f, cuCtxSetCurrent, code, f.args[:1])
	}
	return d.driver.call(f, s, args...)
}

// plain is do for functions without results or arguments in a frame.
func (d *Device) plain(s symbol, args ...uintptr) error {
	f := frames.Get().(*frame)
	defer frames.Put(f)
	return d.do(f, s, args...)
}
