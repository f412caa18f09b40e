package model

import (
	"time"

	"sparrow/kernel"
)

// Stage is a part of a step.
type Stage int

// The stages of a step, in the order of reports.
const (
	Scan      Stage = iota // indexer scores over all keys, and gathering them
	Select                 // top-k, positions to places
	Attention              // over selected or dense keys, with reading them from the cache
	Products               // all matrix products but the head
	Head                   // the product with the vocabulary
	Rest                   // norms, rotations, cache writes, arrays, plan, hand-over
	stageCount
)

var stageNames = [stageCount]string{"indexer scan", "select", "attention", "products", "head", "rest"}

func (s Stage) String() string { return stageNames[s] }

// Stages is the time of each stage in milliseconds.
type Stages [stageCount]float64

// stopwatch is a device that measures the time of each operation. It wraps the model's device only in benchmarks, so
// that it costs nothing elsewhere. Operations of host devices are finished when they return; launches of a GPU are
// timed by its tracer.
type stopwatch struct {
	kernel.Device
	vocab  int
	spent  [stageCount]time.Duration
	tracer kernel.Tracer // of a GPU whose launches are timed; nil otherwise
	spans  kernel.Tracer // of a GPU whose passes are timed as a whole; nil otherwise
	ended  bool          // the latest of these passes has fetched its results
	ops    operations    // of a host device
	reads  *counter      // of a host device; nil otherwise

	projected []kernel.Matrix // of a projection in progress
}

// Write copies to the device. The inputs of a pass are written before anything else of it is enqueued.
func (d *stopwatch) Write(dst kernel.Tensor, src []byte) error {
	if err := d.Device.Write(dst, src); err != nil || d.spans == nil {
		return err
	}
	d.ended = false
	return d.spans.BeginSpan()
}

// Fetch enqueues the copy of a pass's results, the last thing of it.
func (d *stopwatch) Fetch(dst []byte, src kernel.Tensor) (kernel.Event, error) {
	d.ops.next(0)
	if d.spans != nil {
		d.ended = true
		if err := d.spans.EndSpan(); err != nil {
			return nil, err
		}
	}
	return d.Device.Fetch(dst, src)
}

// take is the time of each stage since the last call.
func (d *stopwatch) take() [stageCount]time.Duration {
	s := d.spent
	d.spent = [stageCount]time.Duration{}
	return s
}

// timed runs one operation on the clock of a stage.
func timed[A any](d *stopwatch, s Stage, op func(A) error, a A) error {
	if d.tracer != nil {
		d.tracer.TraceLabel(int(s))
		defer d.tracer.TraceLabel(int(Rest))
	}
	start := time.Now()
	err := op(a)
	d.spent[s] += time.Since(start)
	return err
}

// Operations that are not listed here belong to Rest, the time of a step outside all clocks.

func (d *stopwatch) Scores(a kernel.ScoreArgs) error {
	return timed(d, Scan, d.Device.Scores, a)
}

func (d *stopwatch) GatherIndex(a kernel.IndexGatherArgs) error {
	return timed(d, Scan, d.Device.GatherIndex, a)
}

func (d *stopwatch) Select(a kernel.SelectArgs) error {
	return timed(d, Select, d.Device.Select, a)
}

func (d *stopwatch) Locate(a kernel.LocateArgs) error {
	return timed(d, Select, d.Device.Locate, a)
}

func (d *stopwatch) SparseAttend(a kernel.SparseArgs) error {
	return timed(d, Attention, d.Device.SparseAttend, a)
}

func (d *stopwatch) DualAttend(a kernel.DualArgs) error {
	return timed(d, Attention, d.Device.DualAttend, a)
}

func (d *stopwatch) FlatAttend(a kernel.FlatArgs) error {
	return timed(d, Attention, d.Device.FlatAttend, a)
}

func (d *stopwatch) Unpack(a kernel.UnpackArgs) error {
	return timed(d, Attention, d.Device.Unpack, a)
}

func (d *stopwatch) Combine(a kernel.CombineArgs) error {
	return timed(d, Select, d.Device.Combine, a)
}

func (d *stopwatch) DenseAttend(a kernel.DenseArgs) error {
	return timed(d, Attention, d.Device.DenseAttend, a)
}

func (d *stopwatch) GatherRows(a kernel.GatherArgs) error {
	return timed(d, Attention, d.Device.GatherRows, a)
}

func (d *stopwatch) ConvertPages(a kernel.ConvertArgs) error {
	return timed(d, Attention, d.Device.ConvertPages, a)
}

func (d *stopwatch) Multiply(a kernel.MultiplyArgs) error {
	d.counts(a.W)
	if a.W.Out() == d.vocab {
		return timed(d, Head, d.Device.Multiply, a)
	}
	return timed(d, Products, d.Device.Multiply, a)
}

// counts notes the weights of the product that begins.
func (d *stopwatch) counts(ms ...kernel.Matrix) {
	if d.reads != nil {
		d.ops.product(d.reads.shape(ms), d.reads.product(ms, d.vocab))
	}
}

func (d *stopwatch) Project(a kernel.ProjectArgs) error {
	d.projected = d.projected[:0]
	for _, to := range a.To {
		d.projected = append(d.projected, to.W)
	}
	d.counts(d.projected...)
	return timed(d, Products, d.Device.Project, a)
}

func (d *stopwatch) Absorb(a kernel.AbsorbArgs) error {
	d.counts(a.KVB) // with Expand, which reads the other half of each head
	return timed(d, Products, d.Device.Absorb, a)
}

func (d *stopwatch) Expand(a kernel.ExpandArgs) error {
	return timed(d, Products, d.Device.Expand, a)
}

func (d *stopwatch) Experts(a kernel.ExpertArgs) error {
	if d.reads != nil {
		d.ops.product("", d.reads.chosen(a))
	}
	return timed(d, Products, d.Device.Experts, a)
}

// whole is the stopwatch with the optional abilities of its device.
func (d *stopwatch) whole() kernel.Device {
	if x, ok := d.Device.(abilities); ok {
		return watchedGPU{d, x}
	}
	return watchedHost{d}
}

// watchedHost is a stopwatch around a device whose operations are finished when they return: it times every operation
// of the queue, from its mark to the next one.
type watchedHost struct{ *stopwatch }

// Mark ends the operation before and begins the next.
func (d watchedHost) Mark(m kernel.Mark) error {
	d.ops.next(m)
	return nil
}

// Reached is the operation that runs.
func (d watchedHost) Reached() kernel.Mark { return d.ops.now }

// abilities are those of a GPU.
type abilities interface {
	kernel.Drawer
	kernel.Capturer
	kernel.Reserver
	kernel.Joiner
	kernel.PageMover
	kernel.ExpertPoster
}

// watchedGPU is a stopwatch around a GPU.
type watchedGPU struct {
	*stopwatch
	abilities
}

// BeginLoad starts to prepare weights.
func (d *stopwatch) BeginLoad() error {
	if l, ok := d.Device.(kernel.BulkLoader); ok {
		return l.BeginLoad()
	}
	return nil
}

// EndLoad waits for prepared weights.
func (d *stopwatch) EndLoad() error {
	if l, ok := d.Device.(kernel.BulkLoader); ok {
		return l.EndLoad()
	}
	return nil
}

// MemoryFree is the device's memory.
func (d *stopwatch) MemoryFree() (free, total int64, err error) { return kernel.MemoryFree(d.Device) }
