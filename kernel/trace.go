package kernel

import "time"

// Tracer is a device that can time its launches one by one. Traced passes take longer than others.
type Tracer interface {
	// Trace starts a trace, or ends it.
	Trace(on bool) error
	// TraceLabel labels the launches from now on.
	TraceLabel(label int)
	// Traced waits for the launches since the last call and returns their times.
	Traced() ([]TracedLaunch, error)

	// BeginSpan and EndSpan mark two points in the device's queue; Span waits for the second and returns the device
	// time between them. No trace is needed.
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
