package cuda

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"sparrow/internal/cuda/image"
)

// Kernels holds the embedded kernels after they were loaded into a device. Any goroutine may use it: it changes only
// when an image is loaded whose loading was deferred, which happens once.
type Kernels struct {
	device    *Device
	modules   []*Module
	functions map[string]*Function
	missing   map[string]string // reason for each kernel that cannot run on this device
	deferred  map[string]*deferredImage
	compiling time.Duration // time that the driver took to compile PTX, or to find it in its cache
}

// LoadKernels loads the embedded images for the device: machine code for Hopper, or PTX, which the driver compiles
// unless the result is in its cache.
func (d *Device) LoadKernels() (*Kernels, error) {
	m, err := image.Load()
	if err != nil {
		return nil, err
	}
	k := &Kernels{device: d, functions: map[string]*Function{}, missing: map[string]string{},
		deferred: map[string]*deferredImage{}}
	var mine []*image.Image
	replaced := map[string]bool{}
	for i := range m.Images {
		if im := &m.Images[i]; d.portable && d.capability() >= image.FirstCapability(im.Source) {
			replaced[image.InPlaceOf(im.Source)] = true
		}
	}
	for i := range m.Images {
		im := &m.Images[i]
		if d.portable && im.PTX && d.capability() >= image.FirstCapability(im.Source) && !replaced[im.Name] ||
			!d.portable && im.Native() {
			if d.portable && image.Deferred(im.Source) {
				k.deferLoading(im)
			} else {
				mine = append(mine, im)
			}
			continue
		}
		for _, kn := range im.Kernels {
			k.missing[kn.Name] = fmt.Sprintf("image %s is for %s, but these are the %s kernels on %s", im.Name,
				im.Target, d.tierName(), d.props.Hardware())
		}
	}
	began := time.Now()
	k.modules = make([]*Module, len(mine))
	errs := make([]error, len(mine))
	var wait sync.WaitGroup
	free := make(chan struct{}, compilers)
	for i, im := range mine { // the driver compiles images in parallel
		wait.Go(func() {
			free <- struct{}{}
			k.modules[i], errs[i] = k.loadModule(im)
			<-free
		})
	}
	wait.Wait()
	if d.portable {
		k.compiling = time.Since(began)
	}
	for i, im := range mine {
		if errs[i] == nil {
			errs[i] = find(im, k.modules[i], k.functions)
		}
	}
	if err := errors.Join(append(errs, d.limits.bus.load(k))...); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// compilers is the number of images that the driver compiles in parallel.
const compilers = 8

func (d *Device) tierName() string {
	if d.portable {
		return "portable"
	}
	return "Hopper"
}

// Compiled describes what the driver compiled when the kernels were loaded, and how long it took; it is empty for
// machine code.
func (k *Kernels) Compiled() string {
	if !k.device.portable {
		return ""
	}
	return fmt.Sprintf("the driver compiled %d images of portable kernels for %s, or found them in its cache "+
		"(CUDA_CACHE_PATH, by default ~/.nv/ComputeCache), in %.1f s", len(k.modules), k.device.limits.chip,
		k.compiling.Seconds())
}

func (k *Kernels) loadModule(im *image.Image) (*Module, error) {
	read := im.Cubin
	if k.device.portable {
		read = im.Text
	}
	code, err := read()
	if err != nil {
		return nil, err
	}
	return k.device.loadModule(im.Name, code)
}

// find adds the kernels of a loaded image to a table of functions.
func find(im *image.Image, mod *Module, functions map[string]*Function) error {
	for _, kn := range im.Kernels {
		fn, err := mod.Function(kn.Name)
		if err != nil {
			return err
		}
		if len(kn.Params) == 1 {
			fn.paramBytes = kn.Params[0].Size
		}
		if kn.Dynamic > 0 {
			if err := fn.allowShared(kn.Dynamic); err != nil {
				return err
			}
		}
		functions[kn.Name] = fn
	}
	return nil
}

// deferredImage is an image that is loaded when one of its kernels is first needed.
type deferredImage struct {
	load   func() (map[string]*Function, error) // loads the image on the first call
	loaded *Module                              // nil before the image is loaded
}

// deferLoading adds the kernels of an image that is loaded later.
func (k *Kernels) deferLoading(im *image.Image) {
	x := &deferredImage{}
	x.load = sync.OnceValues(func() (map[string]*Function, error) {
		mod, err := k.loadModule(im)
		if err != nil {
			return nil, err
		}
		x.loaded = mod
		functions := map[string]*Function{}
		return functions, find(im, mod, functions)
	})
	for _, kn := range im.Kernels {
		k.deferred[kn.Name] = x
	}
}

// Function returns the kernel with the given name. If the loading of its image was deferred, Function loads it, which
// must not happen while a stream is captured.
func (k *Kernels) Function(name string) (*Function, error) {
	if fn := k.functions[name]; fn != nil {
		return fn, nil
	}
	if x := k.deferred[name]; x != nil {
		functions, err := x.load()
		return functions[name], err
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
	for _, x := range k.deferred {
		errs = append(errs, x.loaded.Close()) // a second call does nothing
	}
	k.modules, k.functions, k.deferred = nil, nil, nil
	return errors.Join(errs...)
}

// runPersistent launches a kernel whose blocks stay on their SMs and divide the work. It launches at most as many
// blocks as fit at one time, with the threads and the shared memory that the kernel's source declares.
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

// Sizes of the portable kernels' blocks: 256 threads, with a warp for each long row, or 8 lanes for each short row.
const (
	portableThreads = 256
	longRows        = portableThreads / 32 // rows per block
	shortRows       = portableThreads / 8  // rows per block
)

// runRows launches a portable kernel over a number of rows, perBlock of them in each block.
func runRows[T any](k *Kernels, s *Stream, c *checks, rows int32, perBlock uint32, args *T) error {
	return runGrid(k, s, c, Dim{X: rowBlocks(rows, perBlock)}, args)
}

// rowBlocks returns the number of blocks for the given number of rows.
func rowBlocks(rows int32, perBlock uint32) uint32 { return (uint32(rows) + perBlock - 1) / perBlock }

// runGrid launches a portable kernel over a grid of blocks unless its checks failed. An empty grid is not launched.
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
