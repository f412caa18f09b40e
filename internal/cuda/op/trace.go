package op

import (
	"errors"
	"time"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// tracer times the launches and the passes of a device.
type tracer struct {
	dev   *Device
	trace *cuda.Trace // nil unless launches are timed
	from  *cuda.Event // start and end of a span; nil before the first span
	to    *cuda.Event
}

// Tracer returns the device's tracer.
func (d *Device) Tracer() kernel.Tracer {
	d.tracer.dev = d
	return &d.tracer
}

func (t *tracer) close() error { return errors.Join(t.Trace(false), t.from.Close(), t.to.Close()) }

// Trace starts to measure launches if on is true, and otherwise ends the trace.
func (t *tracer) Trace(on bool) (err error) {
	if on && t.trace == nil {
		t.trace, err = t.dev.stream.NewTrace()
		return err
	}
	if !on && t.trace != nil {
		err = t.trace.Close()
		t.trace = nil
	}
	return err
}

// TraceLabel sets the label of the following launches.
func (t *tracer) TraceLabel(label int) {
	if t.trace != nil {
		t.trace.Label = label
	}
}

// Traced waits for the launches since the last call and returns their times.
func (t *tracer) Traced() ([]kernel.TracedLaunch, error) {
	if t.trace == nil {
		return nil, nil
	}
	list, err := t.trace.Take()
	out := make([]kernel.TracedLaunch, len(list))
	for i, e := range list {
		out[i] = kernel.TracedLaunch{Kernel: e.Kernel, Label: e.Label, Time: e.Time}
	}
	return out, err
}

// BeginSpan marks the start of a span in the stream.
func (t *tracer) BeginSpan() (err error) {
	if t.from == nil {
		if t.from, err = t.dev.gpu.NewEvent(); err == nil {
			t.to, err = t.dev.gpu.NewEvent()
		}
	}
	return errors.Join(err, t.dev.settle(), t.from.Record(t.dev.stream))
}

// EndSpan marks the end of the span.
func (t *tracer) EndSpan() error { return errors.Join(t.dev.settle(), t.to.Record(t.dev.stream)) }

// Span returns the device time between the two marks.
func (t *tracer) Span() (time.Duration, error) {
	if err := t.to.Sync(); err != nil {
		return 0, err
	}
	return t.to.Since(t.from)
}
