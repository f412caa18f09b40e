package model

import (
	"time"

	"sparrow/kernel"
)

// Stage is a part of a step.
type Stage int

// Stages of a step, in the order of reports.
const (
	Scan      Stage = iota // gathering keys and computing indexer scores of all keys
	Select                 // top-k, and converting positions to slots
	Attention              // attention over selected or all keys, including cache reads
	Products               // all matrix products except the head
	Head                   // the product with the vocabulary
	Rest                   // everything else: norms, rotations, cache writes, input arrays, planning
	stageCount
)

var stageNames = [stageCount]string{"indexer scan", "select", "attention", "products", "head", "rest"}

func (s Stage) String() string { return stageNames[s] }

// Stages holds the time of each stage in milliseconds.
type Stages [stageCount]float64

// stopwatch is a device that measures the time of each operation. It wraps the device of the model in benchmarks.
// Operations of host devices are finished when they return; the tracer of a GPU times its launches.
type stopwatch struct {
	kernel.Device
	vocab  int
	spent  [stageCount]time.Duration
	tracer kernel.Tracer // tracer of a GPU whose launches are timed, or nil
	spans  kernel.Tracer // tracer of a GPU whose passes are timed as a whole, or nil
	ended  bool          // the latest timed pass has fetched its results
	host   bool          // operations are finished when they return
	ops    operations    // times of a host device
	reads  *counter      // reads of a host device, or nil

	projected []kernel.Matrix // matrices of the projection in progress
}

// Write copies src to the device. The inputs of a pass are written before its operations are enqueued.
func (d *stopwatch) Write(dst kernel.Tensor, src []byte) error {
	if err := d.Device.Write(dst, src); err != nil || d.spans == nil {
		return err
	}
	d.ended = false
	return d.spans.BeginSpan()
}

// Fetch enqueues the copy of a pass's results, which is the pass's last operation.
func (d *stopwatch) Fetch(dst []byte, src kernel.Tensor) (kernel.Event, error) {
	d.ops.next("")
	if d.spans != nil {
		d.ended = true
		if err := d.spans.EndSpan(); err != nil {
			return nil, err
		}
	}
	return d.Device.Fetch(dst, src)
}

// take returns the time of each stage since the last call.
func (d *stopwatch) take() [stageCount]time.Duration {
	s := d.spent
	d.spent = [stageCount]time.Duration{}
	return s
}

// Do runs one operation and adds its time to its stage.
func (d *stopwatch) Do(op kernel.Op) error {
	s := d.stageOf(op)
	if d.tracer != nil {
		d.tracer.TraceLabel(int(s))
		defer d.tracer.TraceLabel(int(Rest))
	}
	if d.host {
		d.ops.next(op.Name())
	}
	if d.reads != nil {
		d.counts(op)
	}
	start := time.Now()
	err := kernel.Do(d.Device, op)
	if s != Rest { // Rest is the remaining time of a step
		d.spent[s] += time.Since(start)
	}
	return err
}

// stageOf returns the stage of an operation.
func (d *stopwatch) stageOf(op kernel.Op) Stage {
	switch a := op.(type) {
	case kernel.ScoreArgs, kernel.IndexGatherArgs:
		return Scan
	case kernel.SelectArgs, kernel.LocateArgs, kernel.CombineArgs:
		return Select
	case kernel.SparseArgs, kernel.LatentArgs, kernel.DualArgs, kernel.FlatArgs, kernel.UnpackArgs, kernel.DenseArgs,
		kernel.GatherArgs, kernel.ConvertArgs:
		return Attention
	case kernel.MultiplyArgs:
		if a.W.Out() == d.vocab {
			return Head
		}
		return Products
	case kernel.ProjectArgs, kernel.AbsorbArgs, kernel.ExpandArgs, kernel.ExpertArgs:
		return Products
	}
	return Rest
}

// counts records the weights of a GEMM that begins.
func (d *stopwatch) counts(op kernel.Op) {
	switch a := op.(type) {
	case kernel.MultiplyArgs:
		d.projected = append(d.projected[:0], a.W)
	case kernel.ProjectArgs:
		d.projected = d.projected[:0]
		for _, to := range a.To {
			d.projected = append(d.projected, to.W)
		}
	case kernel.AbsorbArgs:
		d.projected = append(d.projected[:0], a.KVB) // Expand reads the other half of each head
	case kernel.ExpertArgs:
		d.ops.product("", d.reads.chosen(a))
		return
	default:
		return
	}
	d.ops.product(d.reads.shape(d.projected), d.reads.product(d.projected, d.vocab))
}

// whole returns the stopwatch with all optional interfaces of its device.
func (d *stopwatch) whole() kernel.Device {
	if x, ok := d.Device.(abilities); ok {
		return watchedGPU{d, x}
	}
	d.host = true
	return d
}

// abilities lists the optional interfaces of a GPU device.
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

// BeginLoad starts a load of weights on the device.
func (d *stopwatch) BeginLoad() error {
	if l, ok := d.Device.(kernel.BulkLoader); ok {
		return l.BeginLoad()
	}
	return nil
}

// EndLoad waits until the weights of a load are prepared.
func (d *stopwatch) EndLoad() error {
	if l, ok := d.Device.(kernel.BulkLoader); ok {
		return l.EndLoad()
	}
	return nil
}

// MemoryFree returns the device's free and total memory.
func (d *stopwatch) MemoryFree() (free, total int64, err error) { return kernel.MemoryFree(d.Device) }
