package model

import (
	"sparrow/internal/model"
	"sparrow/plan"
)

// windowFirst returns the first page of a context whose window rows are still in the window.
func windowFirst(w model.Windowed, page, context int) int {
	return max(context/page*page-w.Window(), 0) / page
}

// windowPages returns the number of window pages of a sequence with n new tokens after a context. It returns 0 if rows
// are kept as long as their pages.
func windowPages(m model.Model, page, context, n int) int {
	w, ok := m.(model.Windowed)
	if !ok {
		return 0
	}
	return (context+n+page-1)/page - windowFirst(w, page, context)
}

// states returns the number of sequence states of a step: one before the step for each sequence, and one copy that the
// step advances.
func states(batch int) int { return 2 * batch }

// cacheBytes returns the memory of sequences with n new tokens after a context, including states.
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

// cacheBytes returns the memory of a cell on each rank.
func (b *bench) cacheBytes(context, batch int) int64 {
	if b.ranks() > 1 {
		return int64(b.perSequence(context, batch)*b.ofRank(batch)) * b.model.PageBytes(&b.cfg)
	}
	return cacheBytes(b.model, &b.cfg, context, b.new(batch), batch)
}

// CacheBytes returns the memory of the largest cell or prompt of the options, for a model with its configuration, if
// contexts, batches and prompts are given.
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

// allocateCache allocates the cache and all states of a batch. It allocates the states at once, because growing them
// needs their memory twice for a while.
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

// windows returns the window pages of sequence i of a batch, which has the given number of pages. It returns nil if the
// sequence's pages hold all rows, as on several ranks.
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
