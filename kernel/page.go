package kernel

import (
	"errors"
	"fmt"
	"unsafe"
)

// PageMover is a device that copies pages between its memory and page-locked host memory asynchronously.
type PageMover interface {
	// HostAlloc allocates page-locked host memory. Write may return before it has read a source in such memory: the
	// source must not change until the next Sync has returned, or the Wait of an event that was enqueued later.
	HostAlloc(bytes int64) ([]byte, error)
	// HostFree releases memory that HostAlloc returned.
	HostFree([]byte) error
	// Collect enqueues copies of contiguous tensors to dst, one after the other, after the operations enqueued so far.
	// dst is page-locked, exactly as long as the tensors together, and complete once the event's Wait has returned.
	Collect(dst []byte, src []Tensor) (Event, error)
}

// Collect copies contiguous tensors to dst, one after the other. If the device is not a PageMover, it waits for each
// copy.
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

// Words is host memory of 32-bit words whose copy to a device does not make the host wait, if the device is a
// PageMover. The zero value is empty.
type Words struct {
	words  []int32
	locked []byte // bytes of words, if a PageMover allocated them
}

// Take returns n words. Words that an earlier call returned must not be used any more.
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
	// 4*room bytes as room words; page-locked memory begins at a page, so they are aligned.
	w.words = unsafe.Slice((*int32)(unsafe.Pointer(&w.locked[0])), room)
	return w.words[:n], nil
}

// Free releases the memory to the device that allocated it.
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
