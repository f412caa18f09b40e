package kernel

import "fmt"

// PageMover is a device that copies pages between its memory and page-locked host memory without waiting.
type PageMover interface {
	// HostAlloc takes page-locked host memory. Write from such memory may return before it has read it: the memory must
	// stay unchanged until the next Sync.
	HostAlloc(bytes int64) ([]byte, error)
	// HostFree gives it back.
	HostFree([]byte) error
	// Collect enqueues copies of contiguous tensors to dst, one behind the other, after the operations enqueued so far.
	// dst is page-locked, holds the copies once the event's Wait has returned, and is as long as they are.
	Collect(dst []byte, src []Tensor) (Event, error)
}

// Collect copies contiguous tensors to dst, one behind the other. A device that is no PageMover waits for each.
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

// Distribute enqueues writes of src to contiguous tensors, one behind the other.
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

func short(b []byte, t Tensor) error {
	return fmt.Errorf("%w: a page with %v, of which host memory has %d bytes", ErrArgument, t, len(b))
}
