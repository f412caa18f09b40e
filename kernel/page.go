package kernel

import (
	"errors"
	"fmt"
	"unsafe"
)

// PageMover is a device that copies pages between its memory and page-locked host memory without waiting.
type PageMover interface {
	// HostAlloc allocates page-locked host memory. Write from such memory may return before it has read it: the memory
	// must not change until the next Sync, or until an event that was enqueued later was waited for.
	HostAlloc(bytes int64) ([]byte, error)
	// HostFree releases memory of HostAlloc.
	HostFree([]byte) error
	// Collect enqueues copies of contiguous tensors to dst, one after the other, after the operations enqueued so
	// far. dst is page-locked and exactly as long as the copies; it contains them once the event's Wait has returned.
	Collect(dst []byte, src []Tensor) (Event, error)
}

// Collect copies contiguous tensors to dst, one after the other. A device that is not a PageMover waits for each.
func Collect(m Memory, dst []byte, src []Tensor) (Event, error) {
	if p, ok := m.(PageMover); ok {
		return p.Collect(dst, src)
	}
	for _, t := range src {
		n := t.Extent()
		if n > int64(len(dst)) {
			return nil, short(dst, t)
		}
		if err := m.Read(dst[:n], t); err != nil {
			return nil, err
		}
		dst = dst[n:]
	}
	return Done{}, nil
}

// Distribute enqueues writes of src to contiguous tensors, one after the other.
func Distribute(m Memory, dst []Tensor, src []byte) error {
	for _, t := range dst {
		n := t.Extent()
		if n > int64(len(src)) {
			return short(src, t)
		}
		if err := m.Write(t, src[:n]); err != nil {
			return err
		}
		src = src[n:]
	}
	return nil
}

// Words is host memory of 32-bit words that a device can read, if possible without making the host wait. The zero
// value is empty.
type Words struct {
	words  []int32
	locked []byte // the same, of a PageMover
}

// Take returns n words. Those that it returned before are not used any more.
func (w *Words) Take(m Memory, n int) ([]int32, error) {
	if n <= len(w.words) {
		return w.words[:n], nil
	}
	if err := w.Free(m); err != nil {
		return nil, err
	}
	room := n + n/4 // the next pass may need a few more
	mover, ok := m.(PageMover)
	if !ok {
		w.words = make([]int32, room)
		return w.words[:n], nil
	}
	var err error
	if w.locked, err = mover.HostAlloc(4 * int64(room)); err != nil {
		return nil, err
	}
	// A view of the same 4*room bytes; page-locked memory begins at a page.
	w.words = unsafe.Slice((*int32)(unsafe.Pointer(&w.locked[0])), room)
	return w.words[:n], nil
}

// Free releases the memory.
func (w *Words) Free(m Memory) error {
	locked := w.locked
	w.words, w.locked = nil, nil
	if locked == nil {
		return nil
	}
	mover, ok := m.(PageMover)
	if !ok {
		return errors.New("kernel: page-locked memory must be released to the device that allocated it")
	}
	return mover.HostFree(locked)
}

func short(b []byte, t Tensor) error {
	return fmt.Errorf("%w: a page part is %v, but the host memory for it has %d bytes", ErrArgument, t, len(b))
}
