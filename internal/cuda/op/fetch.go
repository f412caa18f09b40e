package op

import (
	"errors"
	"fmt"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// fetched is page-locked memory through which results are copied to the host. One Fetch uses it at a time, until its
// Wait has returned.
type fetched struct {
	dev    *Device
	memory *cuda.HostBuffer // fault words, then results
	done   *cuda.Event
	dst    []byte
	busy   bool
}

// wordBytes is the size of the fault words, so that results begin at a multiple of 16.
const wordBytes = 16

// Fetch enqueues a copy of the start of src to dst. dst is complete once the event's Wait has returned.
func (d *Device) Fetch(dst []byte, src kernel.Tensor) (kernel.Event, error) {
	if int64(len(dst)) > src.Extent() {
		return nil, fmt.Errorf("%w: fetch: %d bytes were requested, but %v has %d", kernel.ErrArgument, len(dst), src,
			src.Extent())
	}
	if err := d.settle(); err != nil {
		return nil, err
	}
	f, err := fetchBuffer(d, int64(len(dst)))
	if err != nil {
		return nil, err
	}
	to := f.memory.Bytes()
	if err := errors.Join(d.stream.CopyToHost(to[wordBytes:wordBytes+len(dst)], at(src)),
		copyFaults(d, to[:8]), f.done.Record(d.stream)); err != nil {
		return nil, err
	}
	f.dst, f.busy = dst, true
	return f, nil
}

// fetchBuffer returns an idle buffer for the given number of bytes of results.
func fetchBuffer(d *Device, bytes int64) (*fetched, error) {
	var f *fetched
	for _, b := range d.fetches {
		if !b.busy && (f == nil || len(b.memory.Bytes()) > len(f.memory.Bytes())) {
			f = b
		}
	}
	if f == nil {
		done, err := d.gpu.NewMarker()
		if err != nil {
			return nil, err
		}
		f = &fetched{dev: d, done: done}
		d.fetches = append(d.fetches, f)
	}
	if need := wordBytes + bytes; f.memory == nil || int64(len(f.memory.Bytes())) < need {
		if err := f.memory.Free(); err != nil {
			return nil, err
		}
		var err error
		if f.memory, err = d.gpu.AllocHost(need + need/4); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Wait waits for the copy and returns an error for faults that earlier kernels raised.
func (f *fetched) Wait() error {
	if !f.busy {
		return nil
	}
	f.busy = false
	if err := f.done.Sync(); err != nil {
		return err
	}
	copy(f.dst, f.memory.Bytes()[wordBytes:])
	f.dst = nil
	return faulted(f.dev, f.memory.Bytes()[:8])
}

func (f *fetched) close() error { return errors.Join(f.done.Close(), f.memory.Free()) }
