// Package cpu is the fast implementation of the operations on a CPU: package vec's arithmetic on package pool's
// workers.
//
// Its inputs and outputs are tensors in host memory; activations are float32. Weights and cache rows are read as they
// are stored and widened in registers or in small per-worker scratch memory. Products with the block formats of GGUF
// files quantise activations to eight bits, unless the device was opened with Options.Precise. The order of every sum
// depends only on its own length, so the result of a row is bitwise equal in any batch and on any number of workers.
package cpu

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync/atomic"

	"sparrow/internal/device/host"
	"sparrow/internal/pool"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// Device runs operations on the cores of this machine. One goroutine uses it at a time.
type Device struct {
	host.Memory
	name string
	tier *vec.Tier
	unit []float32 // array of ones: scales of e4m3 weights whose scales belong to rows
	pool *pool.Pool
	numa *binding // nil if the system places workers and weights
	few  int      // number of workers for products of few rows

	scratch []scratch // one for each worker
	ahead   ahead
	sampler host.Sampler

	tasks    map[reflect.Type]pool.Task // kept so that running an operation does not allocate; see taskOf
	multiply multiplyState
	experts  expertState
	split    splitState

	outside    atomic.Int32 // table position or pool slot that is out of range and that a worker has read; or -1
	scoreItems []scoreItem  // items of the index scores being computed
	partials   partials     // partial results of rows that several workers share
	shared     []rowChunk   // chunks of the rows in partials
	items      []wholeItem  // items of the attention over whole sequences being computed
}

// scratch is one worker's private memory.
type scratch struct {
	tile, rows, scores []float32
	index              *vec.IndexBlock
	indexFP4           *vec.IndexBlockFP4
	pick               picker
	turn               vec.Turn

	latent        *vec.LatentAttend  // attention over latent rows
	entry         *vec.LatentAttend  // attention over V4 entries
	vectors       *vec.FloatAttend   // attention over latent rows, for tiers without tiles
	vectorsShort  *vec.FloatAttend   // attention over latent rows without a rotated part
	hasQuery      [rowsTogether]bool // latent, or vectors, hold the query of this row
	places, ahead []int              // byte offsets in the pool of the rows of a chunk, and of the next chunk
	chunk         [2][]int           // byte offsets of the keys of a chunk, and of the next chunk, of a whole sequence
	seen          []int              // number of keys of each row of dense attention
	narrow        []byte             // entries as rows of bfloat16
	kept          []keptEntry        // widened entries of the window, then of the extra stream
	part          partials
	join          []float32 // state of rows whose chunks are being joined
}

// grow returns s with length n. It reallocates only if the capacity is too small; the contents are undefined.
func grow[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n+n/2)
	}
	return (*s)[:n]
}

// task makes a pool.Task of a function and its arguments without a closure, which would be allocated.
type task[A any] struct {
	dev   *Device
	args  A
	rows  int
	block int // number of rows of an item
	do    func(d *Device, a *A, worker, row int)
}

func (t *task[A]) Do(worker, item int) {
	for r := item * t.block; r < min((item+1)*t.block, t.rows); r++ {
		t.do(t.dev, &t.args, worker, r)
	}
}

// taskOf returns the device's task for arguments of type A.
func taskOf[A any](d *Device) *task[A] {
	key := reflect.TypeFor[A]()
	t, ok := d.tasks[key].(*task[A])
	if !ok {
		t = &task[A]{}
		d.tasks[key] = t
	}
	return t
}

// rowBlock is the number of rows in one item of a row-wise operation: enough that the work exceeds the cost of an item.
const rowBlock = 8

// eachRow calls do for the rows of an operation on the workers, rowBlock rows at a time.
func eachRow[A any](d *Device, rows int, a A, do func(d *Device, a *A, worker, row int)) error {
	t := taskOf[A](d)
	*t = task[A]{d, a, rows, rowBlock, do}
	return d.run(ceilDiv(rows, rowBlock), t)
}

// each calls do for the items 0..n-1 of an operation on the workers. It is also for rows that take long enough to be
// divided one by one.
func each[A any](d *Device, n int, a A, do func(d *Device, a *A, worker, item int)) error {
	t := taskOf[A](d)
	*t = task[A]{d, a, n, 1, do}
	return d.run(n, t)
}

// KeepAwake keeps the workers from sleeping between operations.
func (d *Device) KeepAwake(on bool) { d.pool.KeepAwake(on) }

// run runs items 0..n-1 on the workers.
func (d *Device) run(n int, t pool.Task) error {
	if err := d.pool.Run(n, t); err != nil {
		return lost(err)
	}
	return nil
}

// lost makes an ErrLost of a failed read of mapped weights, after which the device cannot continue, and returns other
// errors unchanged.
func lost(err error) error {
	var p *pool.PanicError
	if errors.As(err, &p) {
		if at, ok := p.Fault(); ok {
			return fmt.Errorf("%w: reading memory at %#x failed: weights on disk changed (a file of the model was "+
				"truncated, or its disk does not answer); restore the files and start again", kernel.ErrLost, at)
		}
	}
	return err
}

// Backends lists one implementation for each tier that this machine supports, best first, and then the tiers that it
// does not support, with the reason.
func Backends() []kernel.Backend {
	var out []kernel.Backend
	for _, t := range vec.Tiers() {
		out = append(out, kernel.Backend{
			Name:      "cpu-" + t.Name,
			Hardware:  "cpu",
			Summary:   fmt.Sprintf("%s kernels on a worker pool", t.Name),
			Available: func() error { return nil },
			Open: func(o kernel.Options) (kernel.Device, error) {
				if err := host.OneDevice(o); err != nil {
					return nil, err
				}
				return Open(t, o), nil
			},
		})
	}
	for _, m := range vec.Missing() {
		refuse := fmt.Errorf("%w: %s: %w", kernel.ErrUnavailable, m.Name, m.Reason)
		out = append(out, kernel.Backend{
			Name:      "cpu-" + m.Name,
			Hardware:  "cpu",
			Summary:   fmt.Sprintf("%s kernels on a worker pool", m.Name),
			Available: func() error { return refuse },
			Open:      func(kernel.Options) (kernel.Device, error) { return nil, refuse },
		})
	}
	return out
}

// Open starts the workers of a device.
func Open(t *vec.Tier, o kernel.Options) *Device {
	n := o.Workers
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	name := "cpu-" + t.Name
	if o.Precise {
		t = t.Precise()
	}
	d := &Device{Memory: host.MemoryFor(o), name: name, tier: t, scratch: make([]scratch, n),
		tasks: map[reflect.Type]pool.Task{}}
	d.ahead.places = make([]aheadPlace, n)
	if d.few = n; o.NUMA == nil && n >= spareFrom && n >= runtime.GOMAXPROCS(0) {
		d.few--
	}
	if o.NUMA == nil {
		d.pool = pool.NewIdle(n, d.ahead.fetch)
		return d
	}
	d.numa = &binding{Layout: o.NUMA.Divide(n)}
	d.Memory = host.PackedOn(d.numa.Layout)
	d.pool = pool.NewBound(n, d.ahead.fetch, d.numa.bind)
	return d
}

// spareFrom is the number of workers from which one worker stays idle in products of few rows, if there is a worker for
// each processor. The time of these products is bound by reading memory, for which fewer workers are enough. A product
// ends only when its last worker does, and the system and the runtime sometimes use a processor. Results do not depend
// on the number of workers.
const spareFrom = 8

// Name returns the registered name.
func (d *Device) Name() string { return d.name }

// Do runs an operation whose arguments were checked.
func (d *Device) Do(op kernel.Op) error { return operations.Do(d, op) }

// operations has every operation of this device.
var operations = kernel.NewOpTable(
	of(host.Accept), of(host.Put), of(host.Spread), of(host.Take), of(host.Tally),
	of(host.Combine),
	kernel.Runs(absorb), kernel.Runs(addEngram), kernel.Runs(angles), kernel.Runs(blockMax),
	kernel.Runs(compress), kernel.Runs(convertPages), kernel.Runs(convolve), kernel.Runs(delta),
	kernel.Runs(denseAttend), kernel.Runs(dualAttend), kernel.Runs(embed), kernel.Runs(expand),
	kernel.Runs(findCandidates), kernel.Runs(flatAttend), kernel.Runs(gateRows), kernel.Runs(gatedNorm),
	kernel.Runs(gatherIndex), kernel.Runs(gatherRows), kernel.Runs(headNorm), kernel.Runs(hyperHead),
	kernel.Runs(hyperPost), kernel.Runs(hyperPre), kernel.Runs(hyperSum), kernel.Runs(indexQuery),
	kernel.Runs(latentAttend), kernel.Runs(layerNormRows), kernel.Runs(locate), kernel.Runs(meanStreams),
	kernel.Runs(multiply), kernel.Runs(norm), kernel.Runs(project), kernel.Runs(readTable),
	kernel.Runs(rotateRows), kernel.Runs(route), kernel.Runs(routeHash), kernel.Runs(routeRoot),
	kernel.Runs(runExperts), kernel.Runs(sample), kernel.Runs(scores), kernel.Runs(selectBest),
	kernel.Runs(sparseAttend), kernel.Runs(storeEntries), kernel.Runs(storeIndex), kernel.Runs(storeKeys),
	kernel.Runs(storeRows), kernel.Runs(unpack),
	kernel.Runs(func(d *Device, a kernel.CopyArgs) error { return d.Copy(a) }),
	kernel.Runs(func(d *Device, a kernel.PostArgs) error { return d.PostExperts(a.ExpertArgs) }),
)

// of makes an entry of an operation that needs no worker.
func of[A kernel.Op](run func(A) error) kernel.Entry[*Device] {
	return kernel.Runs(func(_ *Device, a A) error { return run(a) })
}

// Activation is float32.
func (d *Device) Activation() kernel.DType { return kernel.F32 }

// Hardware returns a CPU without its cores or memory, because plans do not depend on these: results are bitwise equal
// on all machines of a tier.
func (d *Device) Hardware() kernel.Hardware {
	return kernel.Hardware{Arch: "cpu", NoTiles: !d.tier.AttendsOnTiles()}
}

// Placement describes in one line how large buffers are placed in memory.
func (d *Device) Placement() string {
	if d.numa != nil {
		return d.numa.String()
	}
	return host.Placement()
}

// Close stops the workers, and closes the mailbox of the workers that compute experts for this device.
func (d *Device) Close() error {
	d.split.box.Close()
	return d.pool.Close()
}

// onlyF32 returns an error if a tensor is not f32.
func onlyF32(op string, ts ...kernel.Tensor) error {
	for _, t := range ts {
		if t.DType != kernel.F32 {
			return fmt.Errorf("%w: cpu %s: activations have type %v, this backend supports "+
				"f32", kernel.ErrUnsupported, op,
				t.DType)
		}
	}
	return nil
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
