package model

import (
	"time"

	"sparrow/kernel"
)

// Stage is a part of a step.
type Stage int

// Stages of a step, in the order in which reports list them.
const (
	Scan      Stage = iota // computing indexer scores of all keys, and gathering the keys
	Select                 // top-k of the scores, and converting positions to slots
	Attention              // attention over selected or all keys, including cache reads
	Products               // all GEMMs except the head
	Head                   // the GEMM with the vocabulary
	Rest                   // everything else: norms, rotary embedding, cache writes, input arrays, planning
	stageCount
)

var stageNames = [stageCount]string{"indexer scan", "select", "attention", "products", "head", "rest"}

func (s Stage) String() string { return stageNames[s] }

// Stages holds the time of each stage in milliseconds.
type Stages [stageCount]float64

// stopwatch wraps a device and measures the time of each operation. On a CPU, an operation has ended when its call
// returns; on a GPU, a tracer times the launches.
type stopwatch struct {
	kernel.Device
	vocab  int
	spent  [stageCount]time.Duration
	tracer kernel.Tracer // times the launches of a GPU; nil if they are not timed
	spans  kernel.Tracer // times whole passes of a GPU; nil if they are not timed
	ended  bool          // whether the last pass has fetched its results
	host   bool          // whether operations have ended when their calls return (CPU)
	ops    operations    // times of a CPU device
	reads  *counter      // bytes that a CPU device reads, or nil

	projected []kernel.Matrix // matrices of the current projection
}

// Write copies src to the device. A pass writes its inputs before it enqueues operations.
func (d *stopwatch) Write(dst kernel.Tensor, src []byte) error {
	if err := d.Device.Write(dst, src); err != nil || d.spans == nil {
		return err
	}
	d.ended = false
	return d.spans.BeginSpan()
}

// Fetch enqueues the copy of results to the host, the last operation of a pass.
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

// take returns the times of the stages since the last call.
func (d *stopwatch) take() [stageCount]time.Duration {
	s := d.spent
	d.spent = [stageCount]time.Duration{}
	return s
}

// Do runs an operation and adds its time to its stage.
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
	if s != Rest { // Rest is computed later, as the remaining time of a step
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

// counts adds the weights that a GEMM reads to d.reads, and stores their shape and bytes for the operation.
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
		d.projected = append(d.projected[:0], a.KVB) // Expand reads the other half of the matrix
	case kernel.ExpertArgs:
		d.ops.product("", d.reads.chosen(a))
		return
	default:
		return
	}
	d.ops.product(d.reads.shape(d.projected), d.reads.product(d.projected, d.vocab))
}

// whole returns the stopwatch with the optional interfaces that its device implements.
func (d *stopwatch) whole() kernel.Device {
	if x, ok := d.Device.(abilities); ok {
		return watchedGPU{d, x}
	}
	d.host = true
	return d
}

// abilities lists the optional interfaces of GPU devices.
type abilities interface {
	kernel.Drawer
	kernel.Capturer
	kernel.Reserver
	kernel.Joiner
	kernel.PageMover
	kernel.ExpertPoster
	kernel.TableReading
}

// watchedGPU is the stopwatch of a GPU.
type watchedGPU struct {
	*stopwatch
	abilities
}

// BeginLoad starts the loading of weights on the device.
func (d *stopwatch) BeginLoad() error {
	if l, ok := d.Device.(kernel.BulkLoader); ok {
		return l.BeginLoad()
	}
	return nil
}

// EndLoad waits until the device has prepared all weights.
func (d *stopwatch) EndLoad() error {
	if l, ok := d.Device.(kernel.BulkLoader); ok {
		return l.EndLoad()
	}
	return nil
}

// MemoryFree returns the device's free and total memory in bytes.
func (d *stopwatch) MemoryFree() (free, total int64, err error) { return kernel.MemoryFree(d.Device) }
