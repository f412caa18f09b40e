package op

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// HostAlloc allocates page-locked host memory.
func (d *Device) HostAlloc(bytes int64) ([]byte, error) {
	m, err := d.gpu.AllocHost(bytes)
	if err != nil {
		return nil, err
	}
	if d.hosted == nil {
		d.hosted = map[*byte]*cuda.HostBuffer{}
	}
	b := m.Bytes()
	d.hosted[&b[0]] = m
	return b, nil
}

// HostFree releases memory that HostAlloc allocated.
func (d *Device) HostFree(b []byte) error {
	if len(b) == 0 || d.hosted[&b[0]] == nil {
		return fmt.Errorf("%w: %d bytes of host memory were not allocated by this device", kernel.ErrArgument, len(b))
	}
	m := d.hosted[&b[0]]
	delete(d.hosted, &b[0])
	return m.Free()
}

// Collect enqueues copies of contiguous tensors to page-locked memory. They run in stream order: operations enqueued
// later may overwrite the tensors.
func (d *Device) Collect(dst []byte, src []kernel.Tensor) (kernel.Event, error) {
	if err := d.settle(); err != nil {
		return nil, err
	}
	done, err := d.gpu.NewMarker()
	if err != nil {
		return nil, err
	}
	left := dst
	for _, t := range src {
		n := t.Extent()
		if n > int64(len(left)) {
			err = fmt.Errorf("%w: collect: %v does not fit after %d bytes of dst, which has "+
				"%d", kernel.ErrArgument, t, len(dst)-len(left),
				len(dst))
			break
		}
		if err = d.stream.CopyToHost(left[:n], at(t)); err != nil {
			break
		}
		left = left[n:]
	}
	if err == nil {
		err = done.Record(d.stream)
	}
	if err != nil {
		_ = done.Close() // the first error is returned
		return nil, err
	}
	return collected{done}, nil
}

// collected is an event whose Wait is called once.
type collected struct{ done *cuda.Event }

// Wait waits for the copies. Faults of earlier kernels are not returned here but when results are fetched.
func (c collected) Wait() error {
	err := c.done.Sync()
	if e := c.done.Close(); err == nil {
		err = e
	}
	return err
}
