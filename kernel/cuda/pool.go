package cuda

import (
	"errors"
	"fmt"
	"math/bits"
)

// Pool hands out device memory in power-of-two classes and keeps what comes back for the next request of the same
// class, so that a step that needs the same scratch as the last one costs no driver call. It is owned by one
// goroutine.
//
// Memory given back is reused at once in program order: that is safe when all work of the pool's users is enqueued on
// one stream.
type Pool struct {
	device *Device
	free   map[int64][]*Buffer // class bytes to idle buffers
	used   map[Ptr]*Buffer
	held   int64 // bytes taken from the device, idle or used
	busy   int64 // bytes of those in use
}

// minPoolBytes is the smallest class: smaller requests share no allocation but cost no more than this.
const minPoolBytes = 512

// NewPool makes an empty pool.
func (d *Device) NewPool() *Pool {
	return &Pool{device: d, free: map[int64][]*Buffer{}, used: map[Ptr]*Buffer{}}
}

// poolClass is the class of a request: the next power of two, at least minPoolBytes.
func poolClass(n int64) int64 {
	if n <= minPoolBytes {
		return minPoolBytes
	}
	return 1 << bits.Len64(uint64(n-1))
}

// Get returns at least n bytes with undefined contents. When the device is full, idle buffers of other classes are
// freed and the request is tried once more.
func (p *Pool) Get(n int64) (Ptr, error) {
	if n <= 0 {
		return 0, argumentError("pool request of %d bytes", n)
	}
	class := poolClass(n)
	if idle := p.free[class]; len(idle) > 0 {
		b := idle[len(idle)-1]
		p.free[class] = idle[:len(idle)-1]
		p.used[b.ptr] = b
		p.busy += class
		return b.ptr, nil
	}
	b, err := p.device.Alloc(class)
	if IsOutOfMemory(err) {
		if err := p.Trim(); err != nil {
			return 0, err
		}
		b, err = p.device.Alloc(class)
	}
	if err != nil {
		return 0, fmt.Errorf("cuda: pool holding %d bytes, %d of them in use: %w", p.held, p.busy, err)
	}
	p.used[b.ptr] = b
	p.held += class
	p.busy += class
	return b.ptr, nil
}

// Put gives memory back for reuse.
func (p *Pool) Put(ptr Ptr) error {
	b, ok := p.used[ptr]
	if !ok {
		return argumentError("pool: address %#x was not taken from this pool or was given back twice", uint64(ptr))
	}
	delete(p.used, ptr)
	p.busy -= b.bytes
	p.free[b.bytes] = append(p.free[b.bytes], b)
	return nil
}

// Trim frees every idle buffer.
func (p *Pool) Trim() error {
	var errs []error
	for class, idle := range p.free {
		for _, b := range idle {
			errs = append(errs, b.Free())
			p.held -= class
		}
		delete(p.free, class)
	}
	return errors.Join(errs...)
}

// Held is the number of bytes taken from the device, and how many of them are in use.
func (p *Pool) Held() (held, busy int64) { return p.held, p.busy }

// Close frees everything, in use or not.
func (p *Pool) Close() error {
	errs := []error{p.Trim()}
	for ptr, b := range p.used {
		errs = append(errs, b.Free())
		p.held -= b.bytes
		p.busy -= b.bytes
		delete(p.used, ptr)
	}
	return errors.Join(errs...)
}
