package model

import (
	"sparrow/internal/model"
	"sparrow/plan"
)

// windowFirst returns the index of the first page of a context that contains rows inside the sliding window.
func windowFirst(w model.Windowed, page, context int) int {
	return max(context/page*page-w.Window(), 0) / page
}

// windowPages returns the number of pages for the sliding window of a sequence with n new tokens after a context. It
// returns 0 if the model has no such window.
func windowPages(m model.Model, page, context, n int) int {
	w, ok := m.(model.Windowed)
	if !ok {
		return 0
	}
	return (context+n+page-1)/page - windowFirst(w, page, context)
}

// states returns the number of sequence states of a step: for each sequence the state before the step, and a copy that
// the step modifies.
func states(batch int) int { return 2 * batch }

// cacheBytes returns the bytes of pages and states of a batch of sequences, with n new tokens after a context.
func cacheBytes(m model.Model, cfg *plan.Config, context, n, batch int) int64 {
	pages := int64((context+n+cfg.Page-1)/cfg.Page) * int64(batch)
	w, ok := m.(model.Windowed)
	if !ok {
		return pages * m.PageBytes(cfg)
	}
	windows := int64(windowPages(m, cfg.Page, context, n)) * int64(batch)
	return pages*(m.PageBytes(cfg)-w.WindowBytes(cfg)) + windows*w.WindowBytes(cfg) +
		int64(states(batch))*w.StateBytes(cfg)
}

// cacheBytes returns the bytes of a cell's cache on each rank.
func (b *bench) cacheBytes(context, batch int) int64 {
	if b.ranks() > 1 {
		return int64(b.perSequence(context, batch)*b.ofRank(batch)) * b.model.PageBytes(&b.cfg)
	}
	return cacheBytes(b.model, &b.cfg, context, b.new(batch), batch)
}

// CacheBytes returns the bytes of the cache for the largest cell or prompt of the options, whose Contexts, Batches and
// Prompts must be set.
func (o *Options) CacheBytes(m model.Model, cfg *plan.Config) int64 {
	most := int64(0)
	for _, context := range o.Contexts {
		for _, batch := range o.Batches {
			n := 1
			if len(o.Prompts) == 0 {
				n = o.Chunk / batch
			}
			most = max(most, cacheBytes(m, cfg, context, n, batch))
		}
	}
	for _, n := range o.Prompts {
		most = max(most, cacheBytes(m, cfg, 0, n, 1))
	}
	return most
}

// allocateCache allocates the cache and all states of a batch. The states are allocated together, because growing them
// later needs twice their memory for a short time.
func (b *bench) allocateCache(pages, windows, batch int) error {
	if s, ok := b.model.(model.Stateful); ok {
		if err := s.Reserve(states(batch)); err != nil {
			return err
		}
	}
	if w, ok := b.model.(model.Windowed); ok && b.ranks() == 1 {
		return w.AllocateWindows(&b.cfg, pages, windows)
	}
	return b.model.Allocate(&b.cfg, pages)
}

// windows returns the pages for the sliding window of sequence i of a batch; pages is the number of its other pages. It
// returns nil if the window has no separate pages, as on several ranks.
func (b *bench) windows(i, pages, context, n int) []int32 {
	w, ok := b.model.(model.Windowed)
	if !ok || b.ranks() > 1 {
		return nil
	}
	first, each := windowFirst(w, b.cfg.Page, context), windowPages(b.model, b.cfg.Page, context, n)
	out := make([]int32, pages)
	for p := range out {
		if out[p] = -1; p >= first {
			out[p] = int32(i*each + p - first)
		}
	}
	return out
}
