//go:build linux && amd64 && !nocuda

package cuda

import (
	"runtime"

	"github.com/ebitengine/purego"
)

// Built reports whether this binary can load the driver library.
const Built = true

// library is the handle of a shared library.
type library uintptr

// openLibrary loads a shared library, which the dynamic linker searches in its default folders.
func openLibrary(name string) (library, error) {
	runtime.LockOSThread() // the dynamic linker stores the error text per thread
	defer runtime.UnlockOSThread()
	h, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return 0, &Unavailable{
			Reason: "the driver library cannot be loaded: " + err.Error(),
			Try:    "install the NVIDIA driver" + orCPU,
			Absent: true,
		}
	}
	return library(h), nil
}

// symbol returns the address of an exported function.
func (l library) symbol(name string) (uintptr, error) { return purego.Dlsym(uintptr(l), name) }

// invoke calls a C function of integer and pointer arguments. The arguments are copied before the call, so the slice
// may be on the stack.
func invoke(address uintptr, args []uintptr) uintptr {
	r, _, _ := purego.SyscallN(address, args...)
	return r
}
