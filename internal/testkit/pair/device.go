// Package pair implements a device that consists of two devices. Memory and weights are on both devices. A function of
// the caller runs each operation on the first, on the second, or on both, and may compare the results (Settle).
//
// If both devices compute, for example a GPU and the reference, Settle copies the results of the first to the second,
// so that the next operation has equal inputs on both sides and differences do not accumulate.
package pair

import (
	"errors"
	"fmt"

	"sparrow/kernel"
)

// Device forwards all calls to two devices. The second is in host memory; Read and Fetch read from it.
type Device struct {
	first, second kernel.Device
	run           func(Call) error
}

var _ kernel.Device = (*Device)(nil)

// Call is one operation on both devices.
type Call struct {
	Op     kernel.Op // operation with the arguments of the caller
	First  func() error
	Second func() error
}

// Operation returns the name of the operation's arguments, such as NormArgs.
func (c Call) Operation() string { return fmt.Sprintf("%T", c.Op)[len("kernel."):] }

// On makes a device of two devices; its Close closes both. run runs each operation.
func On(first, second kernel.Device, run func(Call) error) *Device {
	return &Device{first, second, run}
}

// Name returns the name of the first device.
func (d *Device) Name() string { return d.first.Name() }

// Activation returns the activation type of the first device; the second device must have the same type.
func (d *Device) Activation() kernel.DType { return d.first.Activation() }

// Hardware returns the hardware of the first device.
func (d *Device) Hardware() kernel.Hardware { return d.first.Hardware() }

// Close ends both devices.
func (d *Device) Close() error { return errors.Join(d.first.Close(), d.second.Close()) }

// Do passes an operation to both devices.
func (d *Device) Do(op kernel.Op) error {
	return d.run(Call{Op: op,
		First:  func() error { return kernel.Do(d.first, kernel.Replace(op, firsts)) },
		Second: func() error { return kernel.Do(d.second, kernel.Replace(op, seconds)) }})
}

// Copy runs the operation on both devices.
func (d *Device) Copy(a kernel.CopyArgs) error { return d.Do(a) }

// Take runs the operation on both devices.
func (d *Device) Take(a kernel.TakeArgs) error { return d.Do(a) }

// Put runs the operation on both devices.
func (d *Device) Put(a kernel.PutArgs) error { return d.Do(a) }

// Accept runs the operation on both devices.
func (d *Device) Accept(a kernel.AcceptArgs) error { return d.Do(a) }
