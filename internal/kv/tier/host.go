package tier

import (
	"container/list"
	"context"
	"sync"

	"sparrow/internal/kv/prefix"
)

// host stores evicted pages in host memory, and drops the least recently used pages.
type host struct {
	most  int  // maximum number of pages
	early bool // whether pages are also stored when they become reusable
	hears prefix.Listener

	mu    sync.Mutex
	pages map[prefix.Hash]*list.Element // elements of order, by the page's hash
	order list.List                     // *Page values, most recently used first
	count Count
}

func newHost(pages int, l prefix.Listener) *host {
	return &host{most: pages, hears: l, pages: map[prefix.Hash]*list.Element{}, count: Count{Tier: "host"}}
}

func (h *host) Name() string { return "host" }

// Wants reports whether a page is to be stored: when the device evicts it, unless the tier already has it.
func (h *host) Wants(k prefix.Hash, o Occasion) bool {
	return (o == Leaving || h.early) && h.most > 0 && !h.touch(k)
}

// touch reports whether the tier has a page, and if so marks it as used.
func (h *host) touch(k prefix.Hash) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.pages[k]
	if e != nil {
		h.order.MoveToFront(e)
	}
	return e != nil
}

func (h *host) Has(k prefix.Hash) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pages[k] != nil
}

func (h *host) Put(p *Page) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.most < 1 || h.pages[p.Hash] != nil {
		return
	}
	for h.order.Len() >= h.most {
		h.evict()
	}
	p.Hold()
	h.pages[p.Hash] = h.order.PushFront(p)
	h.count.Stored++
	h.hears.Stored(p.Stored)
}

// shed drops the least recently used page. It returns false if there is none.
func (h *host) shed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.evict()
}

func (h *host) evict() bool {
	e := h.order.Back()
	if e == nil {
		return false
	}
	p := h.order.Remove(e).(*Page)
	delete(h.pages, p.Hash)
	h.count.Evicted++
	h.hears.Removed(p.Hash)
	p.Drop()
	return true
}

// Load delivers the stored pages without copying their data.
func (h *host) Load(_ context.Context, keys []prefix.Hash, _ func(context.Context) *Page, deliver func(*Page) bool) (
	n int, why string) {
	for ; n < len(keys); n++ {
		p := h.find(keys[n])
		if p == nil {
			return n, notHeld
		}
		bytes := int64(len(p.Data)) // the reader may release the page after delivery
		if !deliver(p) {
			p.Drop()
			return n, ""
		}
		h.mu.Lock()
		h.count.Hits++
		h.count.HitBytes += bytes
		h.mu.Unlock()
	}
	return n, ""
}

// find returns a page with an added reference, or nil.
func (h *host) find(k prefix.Hash) *Page {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.pages[k]
	if e == nil {
		return nil
	}
	h.order.MoveToFront(e)
	p := e.Value.(*Page)
	p.Hold()
	return p
}

func (h *host) Clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for e := h.order.Front(); e != nil; e = e.Next() {
		e.Value.(*Page).Drop()
	}
	h.order.Init()
	clear(h.pages)
	h.hears.Cleared()
}

func (h *host) Count() Count {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.count
	c.Pages = int64(h.order.Len())
	if e := h.order.Front(); e != nil {
		c.Bytes = c.Pages * int64(len(e.Value.(*Page).Data))
	}
	return c
}

func (h *host) Close() error {
	h.Clear()
	return nil
}

// notHeld is the reason for a page that a tier does not have.
const notHeld = "not held"
