package mla

import (
	"sparrow/internal/attn"
	"sparrow/plan"
)

// inputArrays are the input arrays of a pass, in host memory or on the device.
type inputArrays[T any] struct {
	request, position, slots, lens, kept T // [T, 1]
	start, indexStart                    T // [T, 1]
	table                                T // [requests, width]
	gather, indexSlots                   T // slots of all launches, launch by launch
	pages                                T // pages to convert of all launches, launch by launch
	tables                               T // page tables over the converted pages
}

func inputArraysOf[T any](array func(plan.ArrayName) T) inputArrays[T] {
	return inputArrays[T]{request: array(plan.RowRequests), position: array(plan.Positions), slots: array(plan.Slots),
		lens: array(plan.Lengths), kept: array(plan.Kept), start: array(plan.GatherStart),
		indexStart: array(plan.IndexStart), table: array(plan.PageTable), gather: array(plan.GatherSlots),
		indexSlots: array(plan.IndexSlots), pages: array(plan.ConvertPages), tables: array(plan.ConvertTables)}
}

// filler writes the arrays of one pass into host memory.
type filler struct {
	inputArrays[[]int32]
	batch *attn.Batch
	width int
}

// Prepare fills the arrays that attention reads. It reads the batch and its page tables, and does not use the device.
func (p *Pass) Prepare(b *attn.Batch, block attn.Block) error {
	f := &p.fill
	*f = filler{batch: b, width: p.plan.TablePages, inputArrays: inputArraysOf(block.Array)}
	selects := p.plan.Selects()
	if p.plan.ReadsPages() {
		b.FillTable(f.table, b.Tables, 0)
	}
	clear(f.start)
	clear(f.indexStart)
	topK := int32(p.params.TopK)
	err := b.Rows(func(r attn.Row) error {
		i, n := r.Index, int32(max(r.Position+1, 0)) // positions of a padding request may be negative
		f.request[i], f.position[i], f.lens[i], f.slots[i] = int32(r.Request), int32(max(r.Position, 0)), n, -1
		if selects {
			f.kept[i] = min(n, topK)
		}
		if n > 0 {
			f.slots[i] = f.slot(r.Request, r.Position)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range p.plan.Segments {
		s := &p.plan.Segments[i]
		for j := range s.Launches {
			f.launch(s, &s.Launches[j])
		}
	}
	return nil
}

// slot returns the slot of position p of request r.
func (f *filler) slot(r, p int) int32 {
	n := f.batch.PageTokens
	return f.batch.Tables[r][p/n]*int32(n) + int32(p%n)
}

// launch lists the rows or pages that a launch gathers or converts.
func (f *filler) launch(s *plan.Segment, l *plan.Launch) {
	first, last := attn.LaunchRows(s, l)
	if l.Gather.Count > 0 {
		attn.Gather{Request: f.request, Lens: f.lens, Start: f.start}.
			Fill(f.gather[l.Gather.First:l.Gather.End()], first, last, f.slot)
	}
	if l.Index.Count > 0 {
		attn.Gather{Request: f.request, Lens: f.lens, Start: f.indexStart}.
			Fill(f.indexSlots[l.Index.First:l.Index.End()], first, last, f.slot)
	}
	if l.Pages.Count > 0 {
		f.convert(l, first, last)
	}
}

// convert lists the pages that the rows [first, last) attend to, ordered by request, and writes page tables over the
// converted pages. A page that two requests share is converted for each of them, because the plan does not depend on
// sharing.
func (f *filler) convert(l *plan.Launch, first, last int) {
	pages := f.pages[l.Pages.First:l.Pages.End()]
	tables := f.tables[l.Tables.First*f.width : l.Tables.End()*f.width]
	clear(tables)
	at := 0
	for r := first; r < last; {
		end := attn.RequestEnd(f.request, r, last)
		q, n := int(f.request[r]), f.batch.PageTokens
		for i := range (int(f.lens[end-1]) + n - 1) / n {
			pages[at], tables[q*f.width+i] = f.table[q*f.width+i], int32(at)
			at++
		}
		r = end
	}
}
