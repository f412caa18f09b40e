package kernel

import "fmt"

// Op is one operation: a value of an argument struct, with everything that it reads and writes. All operations are
// defined in this package, each with the interface of the devices that support it.
type Op interface {
	// Name returns the operation's name in messages.
	Name() string
	// Check validates the arguments. The arguments of an operation in a list are checked when it is added.
	Check() error
}

// own is an operation that runs on one device.
type own interface {
	Op
	on(Device) error
}

// shared is an operation that all ranks run together.
type shared interface {
	Op
	among(Collective) error
}

// Do checks and runs a single operation, for example in tests. Passes run lists of operations instead.
func Do(d Device, op Op) error {
	if err := op.Check(); err != nil {
		return err
	}
	return d.Do(op)
}

// Dispatch runs an operation on a device that has a method for each operation that it supports.
func Dispatch(d Device, op Op) error {
	if o, ok := op.(own); ok {
		return o.on(d)
	}
	return fmt.Errorf("%w: %s needs several ranks, but %s is one device", ErrUnsupported, op.Name(), d.Name())
}

// run calls do if the device implements the interface D, and otherwise returns ErrUnsupported.
func run[D any, A Op](dev Device, do func(D, A) error, a A) error {
	if d, ok := dev.(D); ok {
		return do(d, a)
	}
	return fmt.Errorf("%w: %s does not support the operation %s", ErrUnsupported, dev.Name(), a.Name())
}
