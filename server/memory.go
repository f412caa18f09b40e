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

// The maximum memory of a request in bytes for each byte of its body: while it is read, decoded, rendered and
// encoded, and for the part that is kept once its prompt is submitted. Also its memory without a body.
// TestMemoryOfRequests measures these numbers.
const (
	memoryPerByte = 32
	keptPerByte   = 8
	memoryPerCall = 64 << 10
)

// memory is the memory budget for requests in flight, reserved before bodies are read. Large requests wait for each
// other in the order of their arrival and leave a quarter to small ones, which then need not wait for them.
type memory struct {
	mu    sync.Mutex
	total int64
	free  int64
	large int64      // bytes that large requests have reserved
	queue []*waiting // requests that wait, in order of arrival

	used    int64 // maximum bytes in use since memory was last returned to the system
	idle    *time.Timer
	waits   bool         // whether the timer idle runs
	release func()       // returns unused memory to the system
	heap    func() int64 // returns the bytes of the heap, garbage included, that were not returned to the system
	kept    int64        // result of heap after memory was last returned
}

type waiting struct {
	bytes int64
	ready chan struct{} // closed when the bytes are reserved
}

// Memory is returned to the system in two cases: if use has been below a given part of an earlier, large use for a
// given time; and if the heap has grown by a given amount since memory was last returned, because requests of a few
// bytes may have used it.
const (
	idleAfter = 5 * time.Second
	idleWorth = 64 << 20 // bytes of a large use, or a quarter of the budget if that is less
	idlePart  = 4
)

func newMemory(total int64) *memory {
	m := &memory{total: total, free: total, release: debug.FreeOSMemory, heap: heapBytes}
	m.idle = time.AfterFunc(time.Hour, m.returnUnused)
	m.idle.Stop()
	return m
}

// returnUnused returns memory that requests no longer use.
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

// heapBytes returns the size of the heap.
func heapBytes() (n int64) {
	all := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"}}
	metrics.Read(all)
	for i := range all {
		n += int64(all[i].Value.Uint64())
	}
	return n
}

// noteUse starts or stops the timer of idle time. The caller holds mu.
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

// most returns the maximum memory of a single request.
func (m *memory) most() int64 { return m.total / 4 * 3 }

// fits reports whether the given number of bytes can be reserved now. The caller holds mu.
func (m *memory) fits(n int64) bool {
	return n <= m.free && (!m.isLarge(n) || m.large+n <= m.most())
}

// claim reserves memory. The caller holds mu and has checked that it fits.
func (m *memory) claim(n int64) {
	m.free -= n
	if m.isLarge(n) {
		m.large += n
	}
	m.noteUse()
}

// take waits until memory is free, or until ctx or the patience ends, and reserves it.
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
		m.admit() // requests that waited behind this one may fit now
		if err := ctx.Err(); err != nil {
			return cause(ctx)
		}
		return wire.NewError(wire.CodeQueueFull, "", "requests in flight use %s of their %s of memory; send "+
			"it again later", unit.Bytes(m.total-m.free), unit.Bytes(m.total))
	}
	return nil // the memory was reserved in the meantime; the caller releases it
}

// give releases memory that a request of that size reserved: all of it, or a part if the request continues.
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

// admit lets waiting requests continue that fit. A large request that does not fit blocks those after it. The caller
// holds mu.
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

// inUse returns the memory that requests use now.
func (m *memory) inUse() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total - m.free
}

// lease is the memory of one request. It belongs to the request's goroutine.
type lease struct {
	of    *memory
	bytes int64 // bytes that were reserved for the request at first
	held  int64
	body  int64
}

// open reserves the memory of a request with a body, in place of its present memory.
func (l *lease) open(ctx context.Context, m *memory, body int64, patience time.Duration) error {
	n := memoryPerCall + memoryPerByte*body
	if err := m.take(ctx, n, patience); err != nil {
		return err
	}
	l.close()
	*l = lease{of: m, bytes: n, held: n, body: body}
	return nil
}

// settle releases the memory that only reading and encoding needed.
func (l *lease) settle() { l.keep(min(l.held, memoryPerCall+keptPerByte*l.body)) }

// close releases everything.
func (l *lease) close() { l.keep(0) }

func (l *lease) keep(n int64) {
	if l.held > n {
		l.of.give(l.held-n, l.bytes)
		l.held = n
	}
}
