package kernel

import (
	"errors"
	"fmt"
)

// ErrArgument is wrapped by every error about an operation's arguments: a shape, type or range that the operation does
// not support.
var ErrArgument = errors.New("kernel: bad argument")

// ErrUnsupported is wrapped when an implementation does not support a request, such as a layout or an element type.
var ErrUnsupported = errors.New("kernel: not supported by this implementation")

// ErrUnavailable is wrapped when a registered implementation cannot run on this machine or in this build.
var ErrUnavailable = errors.New("kernel: not available here")

// ErrAbsent is wrapped when an implementation cannot run because this machine has no hardware for it. It wraps
// ErrUnavailable.
var ErrAbsent = fmt.Errorf("%w: this machine lacks the required hardware", ErrUnavailable)

// ErrMemory is wrapped when a device has too little memory for a model.
var ErrMemory = errors.New("too little memory on the device")

// ErrLost is wrapped when a device can no longer be used: every later operation fails too, and the contents of its
// memory are lost.
var ErrLost = errors.New("kernel: the device can no longer be used")
