// Package rounded is a device in host memory whose activations are bf16, as a GPU's are: tensors of bf16 flow in and
// out, and every operation is computed by a device of float32 and rounded once at its end.
//
// With the reference as that device, and its mode for the rounding inside products (ref.Device.Rounded), GPUs are
// compared with it: it has the results of a GPU except for the order of sums.
package rounded

import "sparrow/kernel"

// Device keeps activations as bf16.
type Device struct {
	kernel.Device // computes float32 in host memory
	hardware      kernel.Hardware
}

// On makes a device of the given hardware, whose plans it runs, that computes with a device in host memory and closes
// with it.
func On(host kernel.Device, hardware kernel.Hardware) *Device { return &Device{host, hardware} }

// Name reports that results are rounded.
func (d *Device) Name() string { return d.Device.Name() + "-rounded" }

// Activation is bf16.
func (d *Device) Activation() kernel.DType { return kernel.BF16 }

// Hardware returns the hardware for which plans are made.
func (d *Device) Hardware() kernel.Hardware { return d.hardware }

// SwapExperts exchanges the homes of experts on the device that computes.
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
