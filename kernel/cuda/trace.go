package cuda

import (
	"errors"
	"time"
)

// Trace measures the launches of a stream one by one, each between two events. The stream is blocked before the first
// launch and released when the host first copies or waits, so that the device does not wait for the host between
// launches. Traced launches do not overlap. Only one goroutine may use a Trace.
type Trace struct {
	Label int // label of the following launches

	stream  *Stream
	other   *Stream // stream that releases the blocked stream
	word    *Buffer // u32: 1 releases the blocked stream
	events  []*Event
	entries []TraceEntry
	held    bool
}

// TraceEntry is one launch.
type TraceEntry struct {
	Kernel string
	Label  int
	Time   time.Duration // includes the device's time between launches, about 1 us
}

// maxHeld is the maximum number of launches in a blocked stream: the driver's queue has about a thousand entries, and a
// launch with its event needs two.
const maxHeld = 400

// NewTrace starts to measure the launches of a stream.
func (s *Stream) NewTrace() (_ *Trace, err error) {
	t := &Trace{stream: s}
	if t.other, err = s.device.NewStream(); err == nil {
		t.word, err = s.device.Alloc(4)
	}
	if err == nil {
		err = errors.Join(t.other.FillWords(t.word.Ptr(), 0, 1), t.other.Sync())
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	s.trace = t
	return t, nil
}

func (t *Trace) event() error {
	n := len(t.entries)
	if n == len(t.events) {
		e, err := t.stream.device.NewEvent()
		if err != nil {
			return err
		}
		t.events = append(t.events, e)
	}
	return t.events[n].Record(t.stream)
}

// begin is called before a launch.
func (t *Trace) begin() error {
	if len(t.entries) > 0 {
		return nil
	}
	d := t.stream.device
	if err := d.plain(cuStreamWaitValue32, t.stream.handle, uintptr(t.word.Ptr()), 1, 0); err != nil {
		return err
	}
	t.held = true
	if err := t.event(); err != nil {
		return err
	}
	t.entries = append(t.entries, TraceEntry{})
	return nil
}

// end is called after a launch.
func (t *Trace) end(kernel string) error {
	if err := t.event(); err != nil {
		return err
	}
	t.entries = append(t.entries, TraceEntry{Kernel: kernel, Label: t.Label})
	if len(t.entries) > maxHeld {
		return t.release()
	}
	return nil
}

// release lets the blocked stream run.
func (t *Trace) release() error {
	if t == nil || !t.held {
		return nil
	}
	t.held = false
	return t.other.FillWords(t.word.Ptr(), 1, 1)
}

// Take waits for the launches so far and returns their times. Later launches belong to the next Take.
func (t *Trace) Take() ([]TraceEntry, error) {
	if err := t.stream.Sync(); err != nil {
		return nil, err
	}
	if len(t.entries) == 0 {
		return nil, nil
	}
	out := t.entries[1:]
	for i := range out {
		var err error
		if out[i].Time, err = t.events[i+1].Since(t.events[i]); err != nil {
			return nil, err
		}
	}
	t.entries = nil
	return out, errors.Join(t.other.FillWords(t.word.Ptr(), 0, 1), t.other.Sync())
}

// Close ends the trace.
func (t *Trace) Close() error {
	errs := []error{t.release()}
	if t.stream.trace == t {
		t.stream.trace = nil
		errs = append(errs, t.stream.Sync())
	}
	for _, e := range t.events {
		errs = append(errs, e.Close())
	}
	return errors.Join(append(errs, t.other.Close(), t.word.Free())...)
}
