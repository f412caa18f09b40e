package cuda

import (
	"errors"
	"fmt"
	"strings"

	"sparrow/kernel"
)

// ErrUnavailable is wrapped by every error that means that CUDA cannot be used: the build has no binding to the driver,
// the driver library is missing, the driver reports no device, or the device is too old. It wraps
// kernel.ErrUnavailable.
var ErrUnavailable = fmt.Errorf("cuda: %w", kernel.ErrUnavailable)

// ErrArgument is wrapped when a launcher or a memory call has an argument it does not support. It wraps
// kernel.ErrArgument.
var ErrArgument = fmt.Errorf("cuda: %w", kernel.ErrArgument)

// ErrClosed is returned by methods of an object that was closed, freed or destroyed.
var ErrClosed = errors.New("cuda: the device was used after Close")

// Unavailable is the reason why CUDA cannot be used here, with a suggestion.
type Unavailable struct {
	Reason string // the cause
	Try    string // what the user can do
	Absent bool   // there is no GPU, or this build has no driver binding: the user cannot correct it
}

// orCPU is the suggestion for machines without a usable GPU.
const orCPU = ", or run on the CPU (--kernels cpu)"

func (e *Unavailable) Error() string {
	return fmt.Sprintf("%v: %s; %s", ErrUnavailable, e.Reason, e.Try)
}

// Unwrap returns ErrUnavailable and, if there is no GPU, also kernel.ErrAbsent.
func (e *Unavailable) Unwrap() []error {
	if e.Absent {
		return []error{ErrUnavailable, kernel.ErrAbsent}
	}
	return []error{ErrUnavailable}
}

// DriverError is a status other than success from one driver call.
type DriverError struct {
	Call string    // the driver function
	Args []uintptr // addresses and integers passed to the function
	Code int       // CUresult
	Name string    // name of the code in the driver, such as CUDA_ERROR_OUT_OF_MEMORY
	Text string    // the driver's description
}

func (e *DriverError) Error() string {
	args := make([]string, len(e.Args))
	for i, a := range e.Args {
		args[i] = fmt.Sprintf("%#x", a)
	}
	return fmt.Sprintf("cuda: %s(%s): %s (%d): %s", e.Call, strings.Join(args, ", "), e.Name, e.Code, e.Text)
}

// Unwrap returns kernel.ErrLost if the context can no longer be used.
func (e *DriverError) Unwrap() error {
	if lost[e.Code] {
		return kernel.ErrLost
	}
	return nil
}

// Driver status codes (CUresult) that callers distinguish.
const (
	codeOutOfMemory = 2
	codeStubLibrary = 34
	codeNoDevice    = 100
	codeNotReady    = 600

	codePeerAlreadyEnabled = 704
)

// lost has the status codes after which every later call in the context fails too, according to the driver's
// documentation of CUresult: deinitialised, ECC and link errors, faults and exceptions of kernels, a destroyed context,
// launch timeouts and unknown failures.
var lost = map[int]bool{4: true, 214: true, 220: true, 226: true, 700: true, 702: true, 709: true, 710: true,
	714: true, 715: true, 716: true, 717: true, 718: true, 719: true, 721: true, 999: true}

// isOutOfMemory reports whether err is the driver's error for an allocation that does not fit.
func isOutOfMemory(err error) bool {
	var d *DriverError
	return errors.As(err, &d) && d.Code == codeOutOfMemory
}

func argumentError(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrArgument, fmt.Sprintf(format, a...))
}
