package op

import (
	"errors"
	"fmt"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// Registered names of the implementations: kernels for Hopper, and kernels for any GPU from Ampere on.
const (
	Name         = "cuda"
	PortableName = "cuda-portable"
)

// Device runs operations on one GPU. One goroutine uses it at a time.
type Device struct {
	gpu     *cuda.Device
	kernels *cuda.Kernels
	stream  *cuda.Stream
	scratch *cuda.Pool
	faults  *cuda.Buffer   // two u32: fault bits, and a counter of blocks that is zero between launches
	arrived *cuda.Buffer   // u32 [cuda.PackedSlots]: counters of packed products, zero between launches
	count   *cuda.Buffer   // i32 0, 1, 2, ...: row numbers of tables that have a row for each token
	weights []*cuda.Buffer // prepared weights
	upload  *upload        // weights that are being uploaded; nil if no load is in progress
	tracer  tracer
	tried   bool // a dry run: host memory of weights is not read
	capture bool // a pass is being recorded in a graph
	calls   map[cuda.Product]*cuda.ProductCall
	folds   map[cuda.Product]*cuda.FoldedCalls // calls of products with folded weights
	marks   marks
	fetches []*fetched
	hosted  map[*byte]*cuda.HostBuffer // page-locked memory of callers, by its first byte
	tables  hostTables
	held    held
	freed   int            // number of tensor buffers that were freed so far
	peer    *peer          // this device's rank in collective operations; nil if it runs alone
	offload offloaded      // experts in host memory
	spare   []*cuda.Buffer // buffers that replace host memory in a dry run
}

var (
	_ kernel.Device      = (*Device)(nil)
	_ kernel.Drawer      = (*Device)(nil)
	_ kernel.BulkLoader  = (*Device)(nil)
	_ kernel.Traceable   = (*Device)(nil)
	_ kernel.MemoryOwner = (*Device)(nil)
	_ kernel.DryRunner   = (*Device)(nil)
	_ kernel.PageMover   = (*Device)(nil)
)

// Backends lists the implementation for a registry.
func Backends() []kernel.Backend {
	return []kernel.Backend{{
		Name: Name, Hardware: "sm90", Summary: "CUDA kernels for Hopper GPUs",
		Available: func() error { return inOwnWords(cuda.Available()) },
		Open: func(o kernel.Options) (kernel.Device, error) {
			if why := cuda.NeedsPortable(o.Limits); why != "" {
				return nil, fmt.Errorf("%w: --kernels %s cannot run with these limits: %s; use --kernels %s or auto",
					kernel.ErrUnsupported, Name, why, PortableName)
			}
			return opened(cuda.OpenLimited(o.Ordinal, false, o.Limits))
		},
	}, {
		Name: PortableName, Hardware: "sm80", Summary: "CUDA kernels for any GPU from compute capability 8.0 on",
		Available: func() error { return inOwnWords(cuda.PortableAvailable()) },
		Open: func(o kernel.Options) (kernel.Device, error) {
			return opened(cuda.OpenLimited(o.Ordinal, true, o.Limits))
		},
	}}
}

// inOwnWords returns the error err, shortened to the reason why no GPU can be used.
func inOwnWords(err error) error {
	var known *cuda.Unavailable
	if errors.As(err, &known) {
		return unavailable{known}
	}
	return err
}

// unavailable is an ErrUnavailable with only the text of its cause, because callers add the name of the implementation.
type unavailable struct{ cause *cuda.Unavailable }

func (e unavailable) Error() string { return e.cause.Reason + "; " + e.cause.Try }
func (e unavailable) Unwrap() error { return e.cause }

// Open opens a GPU and loads all its kernels.
func Open(ordinal int) (*Device, error) { return opened(cuda.Open(ordinal)) }

func opened(gpu *cuda.Device, err error) (*Device, error) {
	if err != nil {
		return nil, err
	}
	return On(gpu)
}

// On returns a Device for an open GPU, which is closed with the Device.
func On(gpu *cuda.Device) (*Device, error) {
	k, err := gpu.LoadKernels()
	if err != nil {
		return nil, errors.Join(err, gpu.Close())
	}
	return start((&Device{gpu: gpu, kernels: k}))
}

// start creates the streams and memory that operations need in addition to the kernels. If it fails, it closes the
// device.
func start(d *Device) (_ *Device, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if d.stream, err = d.gpu.NewStream(); err != nil {
		return nil, err
	}
	// With overlapping launches, kernels may read weights before the previous launch has ended. This is safe, because
	// no launch before them writes weights.
	d.stream.SetOverlap(true)
	if d.faults, err = d.gpu.Alloc(8); err != nil {
		return nil, err
	}
	if d.arrived, err = d.gpu.Alloc(4 * cuda.PackedSlots); err != nil {
		return nil, err
	}
	if err = d.stream.Fill(d.arrived.Ptr(), 0, 4*cuda.PackedSlots); err != nil {
		return nil, err
	}
	if err = d.marks.open(d.gpu); err != nil {
		return nil, err
	}
	d.scratch = d.gpu.NewPool()
	if err := countUp(d); err != nil {
		return nil, err
	}
	return d, d.stream.Fill(d.faults.Ptr(), 0, 8)
}

// Name returns the registered name.
func (d *Device) Name() string {
	if d.gpu.Portable() {
		return PortableName
	}
	return Name
}

// Compiled describes what the driver compiled when the device was opened; it is empty if nothing was compiled.
func (d *Device) Compiled() string { return d.kernels.Compiled() }

// Asynchronous returns true: the host enqueues operations and the GPU computes them later.
func (d *Device) Asynchronous() bool { return true }

// Do runs an operation whose arguments were checked.
func (d *Device) Do(op kernel.Op) error { return operations.Do(d, op) }

// operations has every operation of this device.
var operations = kernel.NewOpTable(
	kernel.Runs(absorb), kernel.Runs((*Device).Accept), kernel.Runs(addEngram),
	kernel.Runs(angles), kernel.Runs(blockMax), kernel.Runs(candidates),
	kernel.Runs(combine), kernel.Runs(compress), kernel.Runs(convertPages),
	kernel.Runs(convolve), kernel.Runs((*Device).Copy), kernel.Runs(delta),
	kernel.Runs(denseAttend), kernel.Runs(dualAttend), kernel.Runs(embed),
	kernel.Runs(expand), kernel.Runs(chosenExperts), kernel.Runs(flatAttend),
	kernel.Runs(gate), kernel.Runs(gatedNorm), kernel.Runs(gatherIndex),
	kernel.Runs(gatherRows), kernel.Runs(headNorm), kernel.Runs(hyperHead),
	kernel.Runs(hyperPost), kernel.Runs(hyperPre), kernel.Runs(hyperSum),
	kernel.Runs(indexQuery), kernel.Runs(latentAttend), kernel.Runs(layerNorm),
	kernel.Runs(locate), kernel.Runs(meanStreams), kernel.Runs(multiply),
	kernel.Runs(norm), kernel.Runs(project), kernel.Runs((*Device).Put),
	kernel.Runs(readTable), kernel.Runs(rotateRows), kernel.Runs(route),
	kernel.Runs(routeHash), kernel.Runs(routeRoot), kernel.Runs(sample),
	kernel.Runs(scores), kernel.Runs(selectBest), kernel.Runs(sparseAttend),
	kernel.Runs(spread), kernel.Runs(storeEntries), kernel.Runs(storeIndex),
	kernel.Runs(storeKeys), kernel.Runs(storeRows), kernel.Runs((*Device).Take),
	kernel.Runs((*Device).Tally), kernel.Runs(unpack),
	kernel.Runs(func(d *Device, a kernel.PostArgs) error { return d.PostExperts(a.ExpertArgs) }),
)

// Activation is bf16.
func (d *Device) Activation() kernel.DType { return kernel.BF16 }

// Describe returns a description of the GPU.
func (d *Device) Describe() string {
	p := d.gpu.Properties()
	if limits := d.gpu.Limits(); limits != "" {
		return fmt.Sprintf("GPU %d (%s: %s)", p.Ordinal, p.Name, limits)
	}
	return fmt.Sprintf("GPU %d (%s)", p.Ordinal, p.Name)
}

// Hardware returns the properties that the driver reports.
func (d *Device) Hardware() kernel.Hardware {
	p := d.gpu.Properties()
	return kernel.Hardware{
		Arch: p.Hardware(), Model: p.Name, Multiprocessors: p.SMs, MemoryBytes: p.MemoryBytes,
		Portable: d.gpu.Portable(), BusRate: d.gpu.BusRate(),
	}
}

// MemoryFree returns the device memory that can still be allocated, and the size of the device memory.
func (d *Device) MemoryFree() (free, total int64, err error) { return d.gpu.MemoryFree() }

// MemoryUse returns the sizes of the weights and of the scratch memory of operations.
func (d *Device) MemoryUse() kernel.MemoryUse {
	var u kernel.MemoryUse
	for _, b := range d.weights {
		u.Weights += b.Len()
	}
	u.Scratch, _ = d.scratch.Held()
	return u
}

// DryRun returns a device with the properties of this device but without memory.
func (d *Device) DryRun() (kernel.Device, error) {
	gpu, err := d.gpu.Detached()
	if err != nil {
		return nil, err
	}
	// Nothing is launched: only the properties of the kernels are read.
	return start((&Device{gpu: gpu, kernels: d.kernels, tried: true}))
}

// Close waits for the enqueued work and releases everything.
func (d *Device) Close() error {
	errs := []error{d.EndLoad(), d.tracer.close()}
	if d.stream != nil {
		errs = append(errs, d.stream.Sync(), d.stream.Close())
	}
	if d.scratch != nil {
		errs = append(errs, d.scratch.Close())
	}
	errs = append(errs, d.peer.close())
	for _, f := range d.fetches {
		errs = append(errs, f.close())
	}
	for _, m := range d.hosted {
		errs = append(errs, m.Free())
	}
	for _, t := range d.tables.all {
		errs = append(errs, t.close())
	}
	errs = append(errs, d.offload.close(), d.faults.Free(), d.arrived.Free(), d.count.Free(), d.marks.memory.Free())
	for _, b := range d.spare {
		errs = append(errs, b.Free())
	}
	for _, b := range d.weights {
		errs = append(errs, b.Free())
	}
	if d.kernels != nil && !d.tried { // a dry run shares the kernels of the device that made it
		errs = append(errs, d.kernels.Close())
	}
	if d.gpu != nil {
		errs = append(errs, d.gpu.Close())
	}
	return errors.Join(errs...)
}
