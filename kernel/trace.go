package kernel

import "time"

// Traceable is a device that can time its launches.
type Traceable interface{ Tracer() Tracer }

// Tracer times the launches of a device one by one. A traced pass takes longer than a pass without a trace.
type Tracer interface {
	// Trace starts a trace if on is true, and ends it otherwise.
	Trace(on bool) error
	// TraceLabel sets the label of the following launches.
	TraceLabel(label int)
	// Traced waits for the launches since the last call and returns their times.
	Traced() ([]TracedLaunch, error)

	// BeginSpan and EndSpan mark two points in the device's queue. Span waits for the second point and returns the
	// device time between both. No trace is needed.
	BeginSpan() error
	EndSpan() error
	Span() (time.Duration, error)
}

// TracedLaunch is one launch of a kernel.
type TracedLaunch struct {
	Kernel string
	Label  int
	Time   time.Duration
}
