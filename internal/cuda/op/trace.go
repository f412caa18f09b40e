package op

import (
	"errors"
	"time"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// Trace starts to measure launches if on is true, and otherwise ends the trace.
func (d *Device) Trace(on bool) (err error) {
	if on && d.trace == nil {
		d.trace, err = d.stream.NewTrace()
		return err
	}
	if !on && d.trace != nil {
		err = d.trace.Close()
		d.trace = nil
	}
	return err
}

// TraceLabel sets the label of the following launches.
func (d *Device) TraceLabel(label int) {
	if d.trace != nil {
		d.trace.Label = label
	}
}

// Traced waits for the launches since the last call and returns their times.
func (d *Device) Traced() ([]kernel.TracedLaunch, error) {
	if d.trace == nil {
		return nil, nil
	}
	list, err := d.trace.Take()
	out := make([]kernel.TracedLaunch, len(list))
	for i, e := range list {
		out[i] = kernel.TracedLaunch{Kernel: e.Kernel, Label: e.Label, Time: e.Time}
	}
	return out, err
}

// span is a pair of events in the stream.
type span struct{ from, to *cuda.Event }

func (s *span) close() error {
	if s == nil {
		return nil
	}
	return errors.Join(s.from.Close(), s.to.Close())
}

// BeginSpan marks the start of a span in the stream.
func (d *Device) BeginSpan() (err error) {
	if d.span == nil {
		d.span = &span{}
		if d.span.from, err = d.gpu.NewEvent(); err == nil {
			d.span.to, err = d.gpu.NewEvent()
		}
	}
	return errors.Join(err, d.settle(), d.span.from.Record(d.stream))
}

// EndSpan marks the end of the span.
func (d *Device) EndSpan() error { return errors.Join(d.settle(), d.span.to.Record(d.stream)) }

// Span returns the device time between the two marks.
func (d *Device) Span() (time.Duration, error) {
	if err := d.span.to.Sync(); err != nil {
		return 0, err
	}
	return d.span.to.Since(d.span.from)
}
