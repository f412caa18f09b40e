package dual

import (
	"fmt"

	"sparrow/internal/attn"
	"sparrow/plan"
)

// Batch holds a batch, its plan, and the window pages and states of its sequences.
type Batch struct {
	*attn.Batch
	Windows [][]int32 // window pages of each request; nil: each window page has the number of its page
	Pages   int       // number of window pages of the cache
	States  []*State  // nil for padding requests: their rows store nothing and attend to nothing
}

// windows returns the window pages of request r, one for each page of its table.
func (b *Batch) windows(r int) []int32 {
	if len(b.Windows) == 0 || b.Windows[r] == nil {
		return b.Tables[r]
	}
	return b.Windows[r]
}

// inputArrays are the input arrays of a pass, in host memory or on the device.
type inputArrays[T any] struct {
	request, position, slots                T // [T, 1]
	windowLen, groups, kept, heavyLen       T // [T, 1]
	windowBase, groupBase, heavyBase        T // [T, 1]
	groupStart                              T // [T, 1]
	window, heavy                           T // [T, width]
	table                                   T // [requests, width]
	gatherWindow, gatherGroups, gatherHeavy T // slots of all launches, launch by launch
}

func inputArraysOf[T any](array func(plan.ArrayName) T) inputArrays[T] {
	return inputArrays[T]{request: array(plan.RowRequests), position: array(plan.Positions), slots: array(plan.Slots),
		windowLen: array(plan.WindowLengths), groups: array(plan.Groups), kept: array(plan.Kept),
		heavyLen: array(plan.HeavyLengths), windowBase: array(plan.WindowStart), groupBase: array(plan.GroupBase),
		heavyBase: array(plan.HeavyBase), groupStart: array(plan.GroupStart), window: array(plan.WindowIndices),
		heavy: array(plan.HeavyIndices), table: array(plan.PageTable), gatherWindow: array(plan.GatherSlots),
		gatherGroups: array(plan.GroupSlots), gatherHeavy: array(plan.HeavySlots)}
}

// closingArrays are the input arrays for the groups of one ratio that are completed in a pass.
type closingArrays[T any] struct {
	sources T // [n, slots of an entry]
	slots   T // [n, 1]: slot of the entry
	place   T // [n, 1]: first position of the group
	keep    T // [T, 1]: the raw row's index in the ring, -1: none
	tail    T // [T, 1]: the raw row's index in Cache.Tails, -1: none; empty for ratio 128
}

func closingOf[T any](ratio int, array func(plan.ArrayName) T) closingArrays[T] {
	if ratio == IndexRatio {
		return closingArrays[T]{array(plan.CloseSources), array(plan.CloseSlots), array(plan.ClosePositions),
			array(plan.KeepRows), array(plan.TailRows)}
	}
	var none T
	return closingArrays[T]{array(plan.HeavySources), array(plan.HeavyCloses), array(plan.HeavyPositions),
		array(plan.HeavyKeeps), none}
}

// filler writes the arrays of one pass into host memory. Rows are in plan order: the rows of a segment are
// adjacent, and a request's rows may be in two segments.
type filler struct {
	inputArrays[[]int32]
	batch                   *Batch
	width                   int
	windows                 []int32 // [requests, width]: window pages
	windowWidth, heavyWidth int

	rowAt   []int32 // row number of each new token, by request and token
	rowBase []int   // first index of each request in rowAt
	tables  [][]int32
}

// Prepare fills the arrays that attention reads. It reads the batch, its page tables and its states, and does not use
// the device.
func (s *Pass) Prepare(b *Batch, block attn.Block) error {
	f := &s.fill
	keep := *f
	*f = filler{inputArrays: inputArraysOf(block.Array), batch: b, width: s.plan.TablePages, rowAt: keep.rowAt[:0],
		rowBase: keep.rowBase[:0], windows: keep.windows, tables: keep.tables[:0],
		windowWidth: s.plan.Input(plan.WindowIndices).Cols, heavyWidth: s.plan.Input(plan.HeavyIndices).Cols}
	for _, v := range [...][]int32{f.windowBase, f.groupBase, f.heavyBase, f.groupStart} {
		clear(v)
	}
	if err := f.fillTables(); err != nil {
		return err
	}
	if err := b.Rows(func(r attn.Row) error { return f.row(s, r) }); err != nil {
		return err
	}
	for i := range s.plan.Segments {
		g := &s.plan.Segments[i]
		for j := range g.Launches {
			f.launch(s, g, &g.Launches[j])
		}
	}
	for _, ratio := range [...]int{IndexRatio, HeavyRatio} {
		if s.used[ratio] {
			f.closing(s, block, ratio)
		}
	}
	return nil
}

// fillTables writes the page tables and checks that every position that new rows attend to has a window page.
func (f *filler) fillTables() error {
	b := f.batch
	b.FillTable(f.table, b.Tables, 0)
	for r := range b.Tables {
		f.tables = append(f.tables, b.windows(r))
	}
	if n := len(b.Tables) * f.width; cap(f.windows) < n {
		f.windows = make([]int32, n)
	} else {
		f.windows = f.windows[:n]
	}
	b.FillTable(f.windows, f.tables, -1)
	for r := range b.Batch.Batch.Requests {
		f.rowBase = append(f.rowBase, len(f.rowAt))
		for range b.Batch.Batch.Rows(b.Config, r) {
			f.rowAt = append(f.rowAt, -1)
		}
	}
	return nil
}

// checkWindows checks that every position that the row at position p attends to has a window page.
func (f *filler) checkWindows(r, p, window int) error {
	b := f.batch
	tables := b.windows(r)
	if len(tables) != len(b.Tables[r]) {
		return &plan.Error{Code: plan.E22,
			Asked: fmt.Sprintf("request %d with %d entries of window pages for %d "+
				"pages", r, len(tables), len(b.Tables[r])),
			Supported: "one entry for each page: a window page or none"}
	}
	for i := max(p-window+1, 0) / b.PageTokens; i*b.PageTokens <= p; i++ {
		if tables[i] < 0 {
			return &plan.Error{Code: plan.E22,
				Asked: fmt.Sprintf(
					"request %d from position %d, whose window reaches page %d, which has no window page", r, p, i),
				Supported: "sequences with window pages for all positions to which their new tokens attend"}
		}
		if int(tables[i]) >= b.Pages {
			return plan.ErrTableRange(r, tables[i], b.Pages)
		}
	}
	return nil
}

// row writes the arrays of one row. A padding row has no slot and attends to no token.
func (f *filler) row(s *Pass, r attn.Row) error {
	i, p, seen := r.Index, r.Position, 0
	f.rowAt[f.rowBase[r.Request]+r.Token] = int32(i)
	f.request[i], f.position[i], f.slots[i] = int32(r.Request), int32(max(p, 0)), -1
	if f.batch.States[r.Request] != nil {
		if p < 0 {
			return &plan.Error{Code: plan.E22, Asked: fmt.Sprintf("request %d from position %d", r.Request, p),
				Supported: "sequences that begin at position 0 or later"}
		}
		if err := f.checkWindows(r.Request, p, s.params.Window); err != nil {
			return err
		}
		f.slots[i], seen = f.windowPlace(r.Request, p), p+1
	}
	f.windowLen[i] = int32(min(seen, s.params.Window))
	if len(f.groups) > 0 {
		f.groups[i] = int32(seen / IndexRatio)
		f.kept[i] = min(f.groups[i], int32(s.params.TopK))
	}
	if len(f.heavyLen) > 0 {
		f.heavyLen[i] = int32(seen / HeavyRatio)
	}
	return nil
}

// place returns the slot of position p of request r in a pool with one entry for every ratio tokens.
func (f *filler) place(r, p, ratio int) int32 {
	n := f.batch.PageTokens
	return f.table[r*f.width+p/n]*int32(n/ratio) + int32(p%n/ratio)
}

// windowPlace returns the slot of position p of request r in the pool of window entries.
func (f *filler) windowPlace(r, p int) int32 {
	n := f.batch.PageTokens
	return f.windows[r*f.width+p/n]*int32(n) + int32(p%n)
}

// launch lists the inputs of one launch: indices of window entries and of entries of ratio 128 for every row and, if
// the launch gathers a workspace or keys, their slots.
func (f *filler) launch(s *Pass, g *plan.Segment, l *plan.Launch) {
	first, last := attn.LaunchRows(g, l)
	flat := g.Form == plan.FormV4SparsePrefill
	if flat {
		f.gather(f.gatherWindow[l.Gather.First:l.Gather.End()], first, last)
	}
	if l.Groups.Count > 0 {
		attn.Gather{Request: f.request, Lens: f.groups, Start: f.groupStart}.Fill(
			f.gatherGroups[l.Groups.First:l.Groups.End()], first, last,
			func(r, i int) int32 { return f.place(r, i*IndexRatio, IndexRatio) })
	}
	if l.Heavy.Count > 0 {
		attn.Gather{Request: f.request, Lens: f.heavyLen, Start: f.heavyBase}.Fill(
			f.gatherHeavy[l.Heavy.First:l.Heavy.End()], first, last,
			func(r, i int) int32 { return f.place(r, i*HeavyRatio, HeavyRatio) })
	}
	rows := int32(l.Gather.Count)
	for r := first; r < last; r++ {
		if len(f.groupBase) > 0 {
			f.groupBase[r] = f.groupStart[r] + rows
		}
		if len(f.heavyBase) > 0 {
			f.heavyBase[r] += rows
		}
	}
	if last-first <= attn.PieceRows {
		f.lists(first, last, flat)
		return
	}
	attn.InPieces(first, last, func(first, last int) { f.lists(first, last, flat) })
}

// lists writes the indices of the rows [first, last).
func (f *filler) lists(first, last int, flat bool) {
	for r := first; r < last; r++ {
		f.indices(r, flat)
	}
}

// indices writes a row's indices of window entries and of entries of ratio 128: slots of the pools or, for a workspace,
// indices among the entries gathered for the row's request.
func (f *filler) indices(r int, flat bool) {
	q, n := int(f.request[r]), int(f.windowLen[r])
	from := int(f.position[r]) - n + 1
	window := f.window[r*f.windowWidth : (r+1)*f.windowWidth]
	heavy := f.heavy[r*f.heavyWidth : (r+1)*f.heavyWidth]
	groups := min(int(f.heavyLen[r]), len(heavy))
	if flat {
		count(window[:n], from) // windowBase subtracts the positions that were not gathered into the workspace
		count(heavy[:groups], 0)
	} else {
		for i := range n {
			window[i] = f.windowPlace(q, from+i)
		}
		for g := range groups {
			heavy[g] = f.place(q, g*HeavyRatio, HeavyRatio)
		}
	}
	fill(window[n:], -1)
	fill(heavy[groups:], -1)
}

// count sets to[i] = from + i.
func count(to []int32, from int) {
	for i := range to {
		to[i] = int32(from + i)
	}
}

// gather lists the slots of every window entry that the rows [first, last) attend to, request by request. Rows of one
// request are adjacent, in ascending order.
func (f *filler) gather(to []int32, first, last int) {
	at := 0
	for r := first; r < last; {
		end := attn.RequestEnd(f.request, r, last)
		from := int(f.position[r]) + 1 - int(f.windowLen[r])
		for i := r; i < end; i++ {
			f.windowBase[i] = int32(at - from)
		}
		for p := from; p <= int(f.position[end-1]); p++ {
			to[at] = f.windowPlace(int(f.request[r]), p)
			at++
		}
		r = end
	}
}

// closing lists the groups of one ratio that are completed in the pass, and where raw rows of incomplete groups are
// stored. The plan has space for as many groups as the rows of a request can complete; unused entries have no source
// and no slot.
func (f *filler) closing(s *Pass, block attn.Block, ratio int) {
	c := closingOf(ratio, block.Array)
	width := s.closing[ratio].sources.Cols
	fill(c.keep, -1)
	ring, n, b := ringOf(ratio), 0, f.batch
	_ = b.Batch.Batch.ByRank(b.Config, func(r int) error { // visit never returns an error
		last := n + b.Batch.Batch.Closing(b.Config, r, ratio)
		n = f.closed(c, closer{request: r, ratio: ratio, ring: ring, width: width,
			own: int32(s.plan.Share(b.Batch.Batch.Requests[r].Rank).FirstRow)}, n)
		for ; n < last; n++ {
			c.slots[n], c.place[n] = -1, 0
			fill(c.sources[n*width:(n+1)*width], -1)
		}
		return nil
	})
	if ratio == IndexRatio {
		f.tails(c.tail)
	}
}

// closer describes a request that may complete groups of one ratio.
type closer struct {
	request, ratio int
	ring           int   // number of rows in the ratio's ring
	width          int   // number of sources of an entry
	own            int32 // first row of the rank, from which sources are counted
}

// closed lists the groups that one request completes, starting at entry n of c, and returns the number of the next
// entry.
func (f *filler) closed(c closingArrays[[]int32], x closer, n int) int {
	b, r, st := f.batch, x.request, f.batch.States[x.request]
	if st == nil {
		return n
	}
	first := st.len
	end := first + b.Batch.Batch.Rows(b.Config, r)
	for p := max(first, end-x.ring); p < end; p++ {
		c.keep[f.rowAt[f.rowBase[r]+p-first]] = int32(st.slot*x.ring + p%x.ring)
	}
	for p := first/x.ratio*x.ratio + x.ratio - 1; p < end; p += x.ratio {
		c.slots[n], c.place[n] = f.place(r, p, x.ratio), int32(p+1-x.ratio)
		for i := range x.width {
			at := f.source(r, p+1-x.width+i, st, x.ring)
			if at >= 0 {
				at -= x.own
			}
			c.sources[n*x.width+i] = at
		}
		n++
	}
	return n
}

func fill(to []int32, v int32) {
	for i := range to {
		to[i] = v
	}
}

// tails lists the raw rows at the end of pages, which a sequence needs to continue after a cached page.
func (f *filler) tails(to []int32) {
	fill(to, -1)
	b, page := f.batch, f.batch.PageTokens
	for r := range b.Batch.Batch.Requests {
		if b.States[r] == nil {
			continue
		}
		first := b.States[r].len
		end := first + b.Batch.Batch.Rows(b.Config, r)
		for boundary := first/page*page + page; boundary-TailRows < end; boundary += page {
			for p := max(boundary-TailRows, first); p < min(boundary, end); p++ {
				to[f.rowAt[f.rowBase[r]+p-first]] = f.windows[r*f.width+p/page]*TailRows + int32(p+TailRows-boundary)
			}
		}
	}
}

// source returns the source number (kernel.CompressArgs) of the raw row of position q of request r: a row of this pass
// or of the ring, or -1 if q is negative.
func (f *filler) source(r, q int, st *State, ring int) int32 {
	switch {
	case q < 0:
		return -1
	case q < st.len:
		return int32(-2 - (st.slot*ring + q%ring))
	}
	return f.rowAt[f.rowBase[r]+q-st.len]
}
