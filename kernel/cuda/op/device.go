package op

import (
	"errors"
	"fmt"
	"strings"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// Name is the registered name of the implementation.
const Name = "cuda"

// Device runs operations on one GPU. One goroutine uses it at a time.
type Device struct {
	missing
	gpu     *cuda.Device
	kernels *cuda.Kernels
	stream  *cuda.Stream
	scratch *cuda.Pool
	faults  *cuda.Buffer // one u32 of fault bits
	count   *cuda.Buffer // i32 0, 1, 2, ...: the positions of tables that hold a row for each token
}

var _ kernel.Device = (*Device)(nil)

// Backends lists the implementation for a registry. It is not available while operations are missing.
func Backends() []kernel.Backend {
	return []kernel.Backend{{
		Name: Name, Hardware: "sm90", Summary: "CUDA kernels for Hopper GPUs",
		Available: complete,
		Open: func(o kernel.Options) (kernel.Device, error) {
			if err := complete(); err != nil {
				return nil, err
			}
			return Open(o.Ordinal)
		},
	}}
}

// complete says why no model can run here: first what is missing anywhere, which no driver would change, then what is wrong with this machine.
func complete() error { return incomplete(cuda.Available(), Missing()) }

func incomplete(here error, missing []string) error {
	if len(missing) == 0 {
		return here
	}
	e := &cannotRun{cause: here}
	e.text = fmt.Sprintf("no whole model runs on a GPU yet: run with --kernels cpu, or measure what there is with 'sparrow bench kernels --device cuda' (without a CUDA kernel: %s)",
		strings.Join(missing, ", "))
	var known *cuda.Unavailable
	switch {
	case here == nil:
		e.cause = kernel.ErrUnavailable
	case errors.As(here, &known):
		e.text += "; and here " + known.Reason
	default:
		e.text += "; and here " + here.Error()
	}
	return e
}

// cannotRun is an ErrUnavailable in its own words: who asks has named the implementation.
type cannotRun struct {
	text  string
	cause error
}

func (e *cannotRun) Error() string { return e.text }
func (e *cannotRun) Unwrap() error { return e.cause }

// Open opens a GPU with all its kernels, whether or not they suffice for a model.
func Open(ordinal int) (*Device, error) {
	gpu, err := cuda.Open(ordinal)
	if err != nil {
		return nil, err
	}
	return On(gpu)
}

// On is the operations on an open GPU, which closes with them.
func On(gpu *cuda.Device) (_ *Device, err error) {
	d := &Device{gpu: gpu}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if d.kernels, err = d.gpu.LoadKernels(); err != nil {
		return nil, err
	}
	if d.stream, err = d.gpu.NewStream(); err != nil {
		return nil, err
	}
	if d.faults, err = d.gpu.Alloc(4); err != nil {
		return nil, err
	}
	d.scratch = d.gpu.NewPool()
	return d, d.stream.Fill(d.faults.Ptr(), 0, 4)
}

// Name is the registered name.
func (d *Device) Name() string { return Name }

// Activation is bf16.
func (d *Device) Activation() kernel.DType { return kernel.BF16 }

// Hardware is what the driver says of the device.
func (d *Device) Hardware() kernel.Hardware {
	p := d.gpu.Properties()
	return kernel.Hardware{
		Arch: p.Hardware(), Multiprocessors: p.SMs, SharedBytes: p.SharedOptinBytes, MemoryBytes: p.MemoryBytes,
	}
}

// MemoryFree is the device memory that can still be allocated, and all of it.
func (d *Device) MemoryFree() (free, total int64, err error) { return d.gpu.MemoryFree() }

// Close waits for what was enqueued and gives everything back.
func (d *Device) Close() error {
	var errs []error
	if d.stream != nil {
		errs = append(errs, d.stream.Sync(), d.stream.Close())
	}
	if d.scratch != nil {
		errs = append(errs, d.scratch.Close())
	}
	errs = append(errs, d.faults.Free(), d.count.Free())
	if d.kernels != nil {
		errs = append(errs, d.kernels.Close())
	}
	if d.gpu != nil {
		errs = append(errs, d.gpu.Close())
	}
	return errors.Join(errs...)
}
