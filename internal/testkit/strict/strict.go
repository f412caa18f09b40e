// Package strict implements a device for tests that returns errors for arguments that the CUDA operations do not
// support, and computes on the host.
//
// Every call passes through the CUDA operations, on a detached device (cuda.OpenDetached). Their checks of types,
// widths, head counts, offsets, strides and pages, and those of the launchers below them, are the only rules. Accepted
// calls are computed by a device in host memory, such as the reference, in float32 and rounded to bfloat16, the type of
// the activations (internal/testkit/rounded).
//
// Only tests import the package, and the device is never registered.
package strict

import (
	"fmt"

	"sparrow/internal/cuda/op"
	"sparrow/internal/testkit/pair"
	"sparrow/internal/testkit/rounded"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// Device is the strict device.
type Device struct {
	*pair.Device
	gpu *op.Device
	// OnRefusal, if not nil, is called with every error of the CUDA operations, and the operation returns its result.
	// If the result is nil, the operation is computed anyway.
	OnRefusal func(refusal error) error
	// OnCall, if set, is called before every operation, including operations between ranks; if it returns an error, the
	// operation returns that error.
	OnCall  func() error
	checked map[string]int
}

// Open makes a strict device that computes with the device host; its Close closes host.
func Open(host kernel.Device) (*Device, error) {
	gpu, err := op.On(cuda.OpenDetached(cuda.H200))
	if err != nil {
		return nil, err
	}
	d := &Device{gpu: gpu, checked: map[string]int{}}
	d.Device = pair.On(gpu, rounded.On(host, gpu.Hardware()), d.run)
	return d, nil
}

// Name returns the name of the CUDA device with the prefix strict-.
func (d *Device) Name() string { return "strict-" + op.Name }

// Checked returns how many calls of each operation the CUDA operations have accepted, by the type of the arguments.
func (d *Device) Checked() map[string]int { return d.checked }

func (d *Device) called() error {
	if d.OnCall == nil {
		return nil
	}
	return d.OnCall()
}

// run passes an operation to the CUDA operations, which check it, and to the operations of the host, which compute it.
func (d *Device) run(c pair.Call) error {
	if err := d.called(); err != nil {
		return err
	}
	switch err := c.First(); {
	case err == nil:
		d.checked[c.Operation()]++
	case d.OnRefusal == nil:
		return err
	default:
		if err := d.OnRefusal(err); err != nil {
			return err
		}
	}
	if err := c.Second(); err != nil {
		return fmt.Errorf("strict: the CUDA rules accept an operation that the host refuses: %w", err)
	}
	return nil
}
