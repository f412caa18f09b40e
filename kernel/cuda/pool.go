package cuda

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// Pool allocates device memory and keeps freed memory for reuse, so that a step that needs no more scratch memory than
// an earlier step makes no driver call. Only one goroutine may use it.
//
// Freed memory may be reused before work that uses it has run. This is safe if all such work is enqueued on one stream.
// Memory returns to the device only in Close, because captured graphs contain its addresses.
type Pool struct {
	device *Device
	idle   []*Buffer
	used   map[Ptr]*Buffer
	held   int64 // bytes taken from the device, idle or in use
	busy   int64 // bytes in use
	fixed  bool
}

// minPoolBytes is the smallest allocation.
const minPoolBytes = 512

// NewPool makes an empty pool.
func (d *Device) NewPool() *Pool { return &Pool{device: d, used: map[Ptr]*Buffer{}} }

// poolClass returns the size of the allocation for a request: the next power of two, at least minPoolBytes.
func poolClass(n int64) int64 {
	if n <= minPoolBytes {
		return minPoolBytes
	}
	return 1 << bits.Len64(uint64(n-1))
}

// Fix(true) forbids the pool to take memory from the device, which a capture must not do; Fix(false) allows it again.
func (p *Pool) Fix(on bool) { p.fixed = on }

// Get returns at least n bytes with undefined contents: the smallest idle buffer that is large enough, or memory of
// the device.
func (p *Pool) Get(n int64) (Ptr, error) {
	if n <= 0 {
		return 0, argumentError("%d bytes of a pool were requested, want 1 or more", n)
	}
	best := -1
	for i, b := range p.idle {
		if b.bytes >= n && (best < 0 || b.bytes < p.idle[best].bytes) {
			best = i
		}
	}
	var b *Buffer
	switch {
	case best >= 0:
		b = p.idle[best]
		p.idle = slices.Delete(p.idle, best, best+1)
	case p.fixed:
		return 0, argumentError("%d bytes were requested from a pool that must not grow now; it holds %d, of which %d "+
			"are in use", n, p.held,
			p.busy)
	default:
		var err error
		if b, err = p.device.Alloc(poolClass(n)); err != nil {
			return 0, fmt.Errorf("cuda: pool holding %d bytes, %d of them in use: %w", p.held, p.busy, err)
		}
		p.held += b.bytes
	}
	p.used[b.ptr] = b
	p.busy += b.bytes
	return b.ptr, nil
}

// Put returns memory to the pool for reuse.
func (p *Pool) Put(ptr Ptr) error {
	b, ok := p.used[ptr]
	if !ok {
		return argumentError("pool: address %#x was not taken from this pool, or was returned twice", uint64(ptr))
	}
	delete(p.used, ptr)
	p.busy -= b.bytes
	p.idle = append(p.idle, b)
	return nil
}

// Held returns the number of bytes taken from the device, and the number of bytes in use.
func (p *Pool) Held() (held, busy int64) { return p.held, p.busy }

// Close frees everything, in use or not.
func (p *Pool) Close() error {
	var errs []error
	for _, b := range p.idle {
		errs = append(errs, b.Free())
	}
	for _, b := range p.used {
		errs = append(errs, b.Free())
	}
	*p = Pool{device: p.device, used: map[Ptr]*Buffer{}}
	return errors.Join(errs...)
}
