//go:build !linux || !amd64 || nocuda

package cuda

import "errors"

// Built reports whether this binary can load the driver library.
const Built = false

// library replaces the handle of the shared library, which this build never opens.
type library struct{}

// openLibrary returns an error, because this binary has no binding to the driver library.
func openLibrary(name string) (library, error) {
	return library{}, &Unavailable{
		Reason: "this binary was built without CUDA support (tag nocuda, or not linux/amd64)",
		Try:    "use the build linux-amd64-cuda" + orCPU,
		Absent: true,
	}
}

var errNotBuilt = errors.New("not in this build")

func (library) symbol(string) (uintptr, error) { return 0, errNotBuilt }

// invoke is never called, because this build has no driver value. It returns CUDA_ERROR_NOT_INITIALIZED.
func invoke(uintptr, []uintptr) uintptr { return 3 }
