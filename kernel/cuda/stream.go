package cuda

import (
	"errors"
	"sync/atomic"
)

// Stream is a queue of device work that runs in order. One goroutine uses it at a time.
type Stream struct {
	device   *Device
	handle   uintptr
	overlap  bool
	dry      bool
	launches atomic.Int64
	trace    *Trace // nil unless launches are timed
	lane     Ptr    // the stream's word of a limited bus
}

// NewStream makes a stream that does not wait for the device's default stream.
func (d *Device) NewStream() (*Stream, error) {
	f := frames.Get().(*frame)
	defer frames.Put(f)
	const nonBlocking = 1
	lane, err := d.limits.bus.lane()
	if err != nil {
		return nil, err
	}
	if green := d.limits.green; green != 0 {
		err = d.do(f, cuGreenCtxStreamCreate, f.slot(0), green, nonBlocking, 0)
	} else {
		err = d.do(f, cuStreamCreateWithPriority, f.slot(0), nonBlocking, 0)
	}
	if err != nil {
		return nil, err
	}
	return &Stream{device: d, handle: uintptr(f.out[0]), lane: lane}, nil
}

// SetOverlap turns programmatic dependent launch on or off for the launchers of this package: a kernel may then start
// before the previous kernel has ended, and waits in its code before it reads results of that kernel. All embedded
// kernels contain this wait.
//
// Portable kernels do not overlap, because GPUs before Hopper do not support programmatic dependent launch.
func (s *Stream) SetOverlap(on bool) { s.overlap = on && !s.device.portable }

// SetDry makes the stream check arguments but not enqueue kernels, copies or fills.
func (s *Stream) SetDry(on bool) { s.dry = on }

// Launches returns the number of kernels, copies and fills enqueued so far; a graph counts as one.
func (s *Stream) Launches() int64 { return s.launches.Load() }

// enqueue counts one launch and reports whether it must be enqueued, which is false for a dry stream.
func (s *Stream) enqueue() bool {
	if s.dry {
		return false
	}
	s.launches.Add(1)
	return true
}

// Device returns the device the stream belongs to.
func (s *Stream) Device() *Device { return s.device }

// Sync waits until everything enqueued has run and returns the first error of that work.
func (s *Stream) Sync() error {
	if err := s.trace.release(); err != nil {
		return err
	}
	return s.device.plain(cuStreamSynchronize, s.handle)
}

// Idle reports whether everything enqueued has run.
func (s *Stream) Idle() (bool, error) {
	err := s.device.plain(cuStreamQuery, s.handle)
	var d *DriverError
	if errors.As(err, &d) && d.Code == codeNotReady {
		return false, nil
	}
	return err == nil, err
}

// WriteWord enqueues writing a word of page-locked host memory, after all earlier work has run. at is a multiple of
// four bytes.
func (s *Stream) WriteWord(to *HostBuffer, at int, value uint32) error {
	if s.dry {
		return nil
	}
	return s.device.plain(cuStreamWriteValue32, s.handle, to.address+uintptr(at), uintptr(value), 0)
}

// Wait makes all work that is enqueued later wait for an event recorded on another stream.
func (s *Stream) Wait(e *Event) error {
	return s.device.plain(cuStreamWaitEvent, s.handle, e.handle, 0)
}

// Close waits until all enqueued work has run and destroys the stream. A second call does nothing.
func (s *Stream) Close() error {
	if s == nil || s.handle == 0 {
		return nil
	}
	h := s.handle
	s.handle = 0
	return s.device.plain(cuStreamDestroy, h)
}
