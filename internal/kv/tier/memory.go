package tier

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"sparrow/internal/kv/prefix"
	"sparrow/internal/mmap"
)

// Allocator allocates and frees memory for pages, such as page-locked memory for copies to a GPU. It is called only by
// Open and Close.
type Allocator interface {
	Take(bytes int) ([]byte, error)
	Free([]byte) error
}

// plain allocates ordinary memory outside the Go heap.
type plain struct{}

func (plain) Take(bytes int) ([]byte, error) { return mmap.Memory(bytes) }
func (plain) Free(b []byte) error            { return mmap.FreeMemory(b) }

// Page is one page in host memory, with a reference count. Dropping the last reference releases its memory.
type Page struct {
	prefix.Stored        // Tokens is a copy
	Data          []byte // KV rows, then the rows of the window page

	refs   atomic.Int32
	memory *memory
}

// Hold adds a reference.
func (p *Page) Hold() { p.refs.Add(1) }

// Drop removes a reference.
func (p *Page) Drop() {
	switch n := p.refs.Add(-1); {
	case n == 0:
		p.memory.give(p.Data)
		p.Data = nil
	case n < 0:
		panic("tier: a page was released without a reference to it")
	}
}

// slabBytes is the size of one allocation in bytes.
const slabBytes = 32 << 20

// memory allocates pages of host memory, up to a maximum number. All memory is freed together.
type memory struct {
	from Allocator
	each int // size of a page in bytes
	most int // maximum number of pages

	mu    sync.Mutex
	slabs [][]byte
	idle  [][]byte
	made  int // number of allocated pages
	used  int
}

// take returns a page with one reference, or nil if the maximum is reached or the system has no more memory.
func (m *memory) take() *Page {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.idle) == 0 && !m.grow() {
		return nil
	}
	last := len(m.idle) - 1
	p := &Page{Data: m.idle[last], memory: m}
	m.idle = m.idle[:last]
	m.used++
	p.refs.Store(1)
	return p
}

// grow allocates another slab. The caller holds mu.
func (m *memory) grow() bool {
	n := min(max(slabBytes/m.each, 1), m.most-m.made)
	if n < 1 {
		return false
	}
	slab, err := m.from.Take(n * m.each)
	if err != nil {
		m.most = m.made // the system has no more memory
		return false
	}
	m.slabs = append(m.slabs, slab)
	for i := range n {
		m.idle = append(m.idle, slab[i*m.each:(i+1)*m.each:(i+1)*m.each])
	}
	m.made += n
	return true
}

// fill allocates all memory. It returns false if the system has too little.
func (m *memory) fill() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	most := m.most
	for m.made < most {
		if !m.grow() {
			return false
		}
	}
	return true
}

func (m *memory) give(data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.idle = append(m.idle, data)
	m.used--
}

// inUse returns the number of pages in use.
func (m *memory) inUse() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// close frees all memory, unless a page is still in use.
func (m *memory) close() (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used > 0 {
		return nil // pages in use must not be freed
	}
	for _, s := range m.slabs {
		if e := m.from.Free(s); err == nil {
			err = e
		}
	}
	m.slabs, m.idle, m.made, m.most = nil, nil, 0, 0
	return err
}

// wait takes a page. It waits until one is released, or until ctx ends. It calls shed, so that the host tier drops a
// page.
func (m *memory) wait(ctx context.Context, shed func() bool) *Page {
	for {
		if p := m.take(); p != nil {
			return p
		}
		if shed() {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Millisecond):
		}
	}
}
