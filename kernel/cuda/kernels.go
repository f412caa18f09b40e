package cuda

import (
	"errors"
	"fmt"

	"sparrow/internal/cuda/image"
)

// Kernels are the embedded kernels, loaded into one device. After loading nothing changes, so any goroutine may use it.
type Kernels struct {
	device    *Device
	modules   []*Module
	functions map[string]*Function
	missing   map[string]string // kernels that cannot run on this device, and why
}

// LoadKernels loads every embedded image. On compute capability 9.0 that is machine code; on a newer device the
// portable kernels are compiled from PTX by the driver, and the kernels for Hopper alone are missing.
func (d *Device) LoadKernels() (*Kernels, error) {
	m, err := image.Load()
	if err != nil {
		return nil, err
	}
	k := &Kernels{device: d, functions: map[string]*Function{}, missing: map[string]string{}}
	for i := range m.Images {
		if err := k.load(&m.Images[i]); err != nil {
			return nil, errors.Join(err, k.Close())
		}
	}
	return k, nil
}

// load adds one image's kernels.
func (k *Kernels) load(im *image.Image) error {
	p := k.device.props
	var code []byte
	var err error
	switch {
	case p.Major == 9 && p.Minor == 0:
		code, err = im.Cubin()
	case p.Major >= 9 && im.PTX:
		code, err = im.Text()
	default:
		for _, kn := range im.Kernels {
			k.missing[kn.Name] = fmt.Sprintf("image %s is for %s, this is %s", im.Name, im.Target, p.Hardware())
		}
		return nil
	}
	if err != nil {
		return err
	}
	mod, err := k.device.LoadModule(im.Name, code)
	if err != nil {
		return err
	}
	k.modules = append(k.modules, mod)
	for _, kn := range im.Kernels {
		fn, err := mod.Function(kn.Name)
		if err != nil {
			return err
		}
		if len(kn.Params) == 1 {
			fn.paramBytes = kn.Params[0].Size
		}
		if kn.Dynamic > 0 {
			if err := fn.AllowShared(kn.Dynamic); err != nil {
				return err
			}
		}
		k.functions[kn.Name] = fn
	}
	return nil
}

// Function is a loaded kernel by its entry name.
func (k *Kernels) Function(name string) (*Function, error) {
	if fn := k.functions[name]; fn != nil {
		return fn, nil
	}
	if why := k.missing[name]; why != "" {
		return nil, fmt.Errorf("cuda: kernel %s: %s: %w", name, why, ErrUnavailable)
	}
	return nil, fmt.Errorf("cuda: kernel %s: %w", name, image.ErrUnknown)
}

// Close unloads the images.
func (k *Kernels) Close() error {
	var errs []error
	for _, m := range k.modules {
		errs = append(errs, m.Close())
	}
	k.modules, k.functions = nil, nil
	return errors.Join(errs...)
}

// runPersistent launches a kernel whose blocks stay on their SMs and divide the work among them: no more blocks
// than fit at the same time, with the threads and the shared memory that its source names.
func runPersistent[T any](k *Kernels, s *Stream, kernel string, blocks, perSM int32, args *T) error {
	if blocks <= 0 {
		return nil
	}
	fn, err := k.Function(kernel)
	if err != nil {
		return err
	}
	grid := min(uint32(blocks), uint32(perSM)*uint32(k.device.props.SMs))
	return Run(s, fn, Launch{Grid: Dim{X: grid}, Block: Dim{X: uint32(fn.attrs.MaxThreads)}, Shared: fn.dynamic,
		Overlap: s.overlap}, args)
}

// How the portable kernels cover rows: blocks of 256 threads, a warp for each long row or 8 lanes for each short one.
const (
	portableThreads = 256
	longRows        = portableThreads / 32 // per block
	shortRows       = portableThreads / 8  // per block
)

// runRows launches a portable kernel over a number of rows, perBlock of them in each block.
func runRows[T any](k *Kernels, s *Stream, c *checks, rows int32, perBlock uint32, args *T) error {
	return runGrid(k, s, c, Dim{X: rowBlocks(rows, perBlock)}, args)
}

// rowBlocks is how many blocks some rows take.
func rowBlocks(rows int32, perBlock uint32) uint32 { return (uint32(rows) + perBlock - 1) / perBlock }

// runGrid launches a portable kernel over a grid of blocks unless its checks failed. An empty grid is no launch.
func runGrid[T any](k *Kernels, s *Stream, c *checks, grid Dim, args *T) error {
	if c.err != nil || grid.X == 0 {
		return c.err
	}
	fn, err := k.Function(c.kernel)
	if err != nil {
		return err
	}
	return Run(s, fn, Launch{Grid: grid, Block: Dim{X: portableThreads}, Overlap: s.overlap}, args)
}
