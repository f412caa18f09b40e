package server

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync"
	"time"

	"sparrow/internal/unit"
	"sparrow/internal/wire"
)

// Maximum memory of a request: bytes per byte of its body until the prompt is submitted, bytes per byte after that, and
// bytes for a request without a body. TestMemoryOfRequests measures these numbers.
const (
	memoryPerByte = 32
	keptPerByte   = 8
	memoryPerCall = 64 << 10
)

// memory is the memory budget for requests. Memory is reserved before a body is read. Large requests may use three
// quarters of the budget and wait in order of arrival, so that small requests need not wait for them.
type memory struct {
	mu    sync.Mutex
	total int64
	free  int64
	large int64      // bytes reserved for large requests
	queue []*waiting // waiting requests, in order of arrival

	used    int64 // maximum bytes in use since memory was last returned to the operating system
	idle    *time.Timer
	waits   bool         // whether the timer idle runs
	release func()       // returns unused memory to the operating system
	heap    func() int64 // returns the bytes of the heap, including garbage, that the process has
	kept    int64        // heap() after memory was last returned
}

type waiting struct {
	bytes int64
	ready chan struct{} // closed when the memory was reserved
}

// Memory is returned to the operating system in two cases: use has been far below an earlier, large use for idleAfter;
// or the heap has grown by a given amount since memory was last returned.
const (
	idleAfter = 5 * time.Second
	idleWorth = 64 << 20 // bytes of a large use; at most a quarter of the budget
	idlePart  = 4
)

func newMemory(total int64) *memory {
	m := &memory{total: total, free: total, release: debug.FreeOSMemory, heap: heapBytes}
	m.idle = time.AfterFunc(time.Hour, m.returnUnused)
	m.idle.Stop()
	return m
}

// returnUnused returns memory to the operating system.
func (m *memory) returnUnused() {
	m.mu.Lock()
	defer m.mu.Unlock()
	worth := m.used >= min(idleWorth, m.total/4) || m.heap() >= m.kept+idleWorth
	m.waits, m.used = false, m.total-m.free
	if worth {
		m.release()
		m.kept = m.heap()
	}
}

// heapBytes returns the bytes of the heap.
func heapBytes() (n int64) {
	all := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"}}
	metrics.Read(all)
	for i := range all {
		n += int64(all[i].Value.Uint64())
	}
	return n
}

// noteUse starts or stops the timer for returning memory. The caller holds mu.
func (m *memory) noteUse() {
	now := m.total - m.free
	m.used = max(m.used, now)
	switch idle := now <= m.used/idlePart; {
	case idle && !m.waits:
		m.waits = true
		m.idle.Reset(idleAfter)
	case !idle && m.waits:
		m.waits = false
		m.idle.Stop()
	}
}

func (m *memory) isLarge(n int64) bool { return n > m.total/32 }

// most returns the maximum memory of one request in bytes.
func (m *memory) most() int64 { return m.total / 4 * 3 }

// fits reports whether n bytes can be reserved now. The caller holds mu.
func (m *memory) fits(n int64) bool {
	return n <= m.free && (!m.isLarge(n) || m.large+n <= m.most())
}

// claim reserves n bytes. The caller holds mu and has called fits.
func (m *memory) claim(n int64) {
	m.free -= n
	if m.isLarge(n) {
		m.large += n
	}
	m.noteUse()
}

// take reserves n bytes. It waits until they are free, until ctx ends, or for at most the time patience.
func (m *memory) take(ctx context.Context, n int64, patience time.Duration) error {
	if n > m.most() {
		return wire.NewError(wire.CodeBodyTooLarge, "", "a body of this size may take %s of memory, but one request "+
			"may use at most %s; send less, or start the server with a larger --request-memory", unit.Bytes(n),
			unit.Bytes(m.most()))
	}
	m.mu.Lock()
	ahead := m.isLarge(n) && slices.ContainsFunc(m.queue, func(w *waiting) bool { return m.isLarge(w.bytes) })
	if !ahead && m.fits(n) {
		m.claim(n)
		m.mu.Unlock()
		return nil
	}
	w := &waiting{bytes: n, ready: make(chan struct{})}
	m.queue = append(m.queue, w)
	m.mu.Unlock()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	case <-timeout.C:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(m.queue, w); i >= 0 {
		m.queue = slices.Delete(m.queue, i, i+1)
		m.admit() // requests after this one in the queue may fit now
		if err := ctx.Err(); err != nil {
			return cause(ctx)
		}
		return wire.NewError(wire.CodeQueueFull, "", "requests in flight use %s of their %s of memory; send "+
			"it again later", unit.Bytes(m.total-m.free), unit.Bytes(m.total))
	}
	return nil // the memory was reserved meanwhile; the caller releases it
}

// give releases n of the of bytes that a request has reserved.
func (m *memory) give(n, of int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free += n
	if m.isLarge(of) {
		m.large -= n
	}
	m.admit()
	m.noteUse()
}

// admit reserves memory for waiting requests that fit. A large request that does not fit blocks later large ones. The
// caller holds mu.
func (m *memory) admit() {
	held := false
	m.queue = slices.DeleteFunc(m.queue, func(w *waiting) bool {
		if large := m.isLarge(w.bytes); large && held || !m.fits(w.bytes) {
			held = held || large
			return false
		}
		m.claim(w.bytes)
		close(w.ready)
		return true
	})
}

// inUse returns the reserved bytes.
func (m *memory) inUse() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total - m.free
}

// lease is the reserved memory of one request. Only the request's goroutine uses it.
type lease struct {
	of    *memory
	bytes int64 // bytes that were reserved first
	held  int64
	body  int64
}

// open reserves the memory for a request with a body of the given size, after releasing what it had.
func (l *lease) open(ctx context.Context, m *memory, body int64, patience time.Duration) error {
	n := memoryPerCall + memoryPerByte*body
	if err := m.take(ctx, n, patience); err != nil {
		return err
	}
	l.close()
	*l = lease{of: m, bytes: n, held: n, body: body}
	return nil
}

// settle releases the memory that is needed only until the prompt is submitted.
func (l *lease) settle() { l.keep(min(l.held, memoryPerCall+keptPerByte*l.body)) }

// close releases all reserved memory.
func (l *lease) close() { l.keep(0) }

func (l *lease) keep(n int64) {
	if l.held > n {
		l.of.give(l.held-n, l.bytes)
		l.held = n
	}
}
