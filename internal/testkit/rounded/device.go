// Package rounded implements a device in host memory with bf16 activations, like those of a GPU: operations read and
// write bf16 tensors, and each operation is computed by a float32 device and its results are rounded once.
//
// GPUs are compared with such a device whose inner device is the reference with ref.Device.Rounded: its results equal
// those of a GPU except for the order of sums.
package rounded

import "sparrow/kernel"

// Device is a device with bf16 activations.
type Device struct {
	kernel.Device // device in host memory that computes in float32
	hardware      kernel.Hardware
}

// On returns a device that runs plans for the given hardware and computes with the device host; its Close closes host.
func On(host kernel.Device, hardware kernel.Hardware) *Device { return &Device{host, hardware} }

// Name returns the name of the computing device with the suffix -rounded.
func (d *Device) Name() string { return d.Device.Name() + "-rounded" }

// Activation returns bf16.
func (d *Device) Activation() kernel.DType { return kernel.BF16 }

// Hardware returns the hardware for which plans are made.
func (d *Device) Hardware() kernel.Hardware { return d.hardware }

// SwapExperts moves experts between memories on the inner device.
func (d *Device) SwapExperts(x kernel.Experts, in, out int) error {
	return kernel.SwapExperts(d.Device, x, in, out)
}

// Do computes an operation in float32 and rounds its results.
func (d *Device) Do(op kernel.Op) error {
	var w widened
	defer w.release()
	if err := kernel.Do(d.Device, kernel.Replace(op, kernel.Replacement{Tensor: w.widen})); err != nil {
		return err
	}
	w.narrow()
	return nil
}

// Copy rounds its results to bf16.
func (d *Device) Copy(a kernel.CopyArgs) error { return d.Do(a) }

// Take rounds its results to bf16.
func (d *Device) Take(a kernel.TakeArgs) error { return d.Do(a) }

// Put rounds its results to bf16.
func (d *Device) Put(a kernel.PutArgs) error { return d.Do(a) }

// Accept rounds its results to bf16.
func (d *Device) Accept(a kernel.AcceptArgs) error { return d.Do(a) }
