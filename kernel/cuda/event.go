package cuda

import (
	"math"
	"time"
)

// Event marks a point in a stream.
type Event struct {
	device *Device
	handle uintptr
}

// NewEvent makes an event that can be used to measure time (Since).
func (d *Device) NewEvent() (*Event, error) { return d.newEvent(0) }

// NewMarker makes an event for ordering only: recording it takes less time, and it cannot be used to measure time.
func (d *Device) NewMarker() (*Event, error) {
	const disableTiming = 2
	return d.newEvent(disableTiming)
}

func (d *Device) newEvent(flags uintptr) (*Event, error) {
	f := frames.Get().(*frame)
	defer frames.Put(f)
	if err := d.do(f, cuEventCreate, f.slot(0), flags); err != nil {
		return nil, err
	}
	return &Event{device: d, handle: uintptr(f.out[0])}, nil
}

// Record places the event after everything enqueued on the stream so far.
func (e *Event) Record(s *Stream) error { return e.device.plain(cuEventRecord, e.handle, s.handle) }

// Sync waits until the event has been reached.
func (e *Event) Sync() error { return e.device.plain(cuEventSynchronize, e.handle) }

// Since returns the device time between an earlier event and this one; both must have been reached. The resolution is
// about half a microsecond.
func (e *Event) Since(earlier *Event) (time.Duration, error) {
	f := frames.Get().(*frame)
	defer frames.Put(f)
	f.out[0] = 0
	if err := e.device.do(f, cuEventElapsedTime, f.slot(0), earlier.handle, e.handle); err != nil {
		return 0, err
	}
	ms := math.Float32frombits(uint32(f.out[0]))
	return time.Duration(float64(ms) * float64(time.Millisecond)), nil
}

// Close destroys the event. A second call does nothing.
func (e *Event) Close() error {
	if e == nil || e.handle == 0 {
		return nil
	}
	h := e.handle
	e.handle = 0
	return e.device.plain(cuEventDestroy, h)
}
