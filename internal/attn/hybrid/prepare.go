package hybrid

import (
	"sparrow/internal/attn"
	"sparrow/plan"
)

// Batch holds a batch, its plan, and the states and window pages of its sequences. Window pages hold snapshots of
// states.
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

// Holds reports whether the rows of request r are held back, because they are drafts that are being verified.
func (b *Batch) Holds(r int) bool {
	return b.States[r] != nil && b.States[r].of.held > 0 && b.Batch.Batch.KindOf(r) == plan.ModeVerify
}

// inputArrays are the input arrays of a pass, in host memory or on the device.
type inputArrays[T any] struct {
	request, position, slots, lens T // [T, 1]
	groups, kept, groupStart       T // [T, 1]: complete pools, selected pools, first gathered key of the request
	groupSlots                     T // slots of gathered keys of all launches, launch by launch
	start                          T // [T, 1]: first gathered row of the request
	gather                         T // slots of gathered rows of all launches, launch by launch
	table                          T // [requests, width]
	closeSources                   T // [n, 4]
	closeSlots                     T // [n, 1]
	keep                           T // [T, 1]
	stateRows, snapshots           T // [T, 1]
	spans                          T // [requests, 6]
	stateFirst                     T // [requests, 1]: not given if rows of linear attention are computed one by one
}

func inputArraysOf[T any](array func(plan.ArrayName) T) inputArrays[T] {
	return inputArrays[T]{request: array(plan.RowRequests), position: array(plan.Positions), slots: array(plan.Slots),
		lens: array(plan.Lengths), groups: array(plan.Groups), kept: array(plan.Kept),
		groupStart: array(plan.GroupStart), groupSlots: array(plan.GroupSlots), start: array(plan.GatherStart),
		gather: array(plan.GatherSlots), table: array(plan.PageTable),
		closeSources: array(plan.CloseSources), closeSlots: array(plan.CloseSlots), keep: array(plan.KeepRows),
		stateRows: array(plan.StateRows), snapshots: array(plan.Snapshots), spans: array(plan.StateSpans),
		stateFirst: array(plan.StateFirst)}
}

// filler writes the arrays of one pass into host memory. Rows are in plan order: the rows of a segment are
// adjacent, and a request's rows may be in two segments.
type filler struct {
	inputArrays[[]int32]
	batch   *Batch
	width   int
	rowAt   []int32 // row number of each new token, by request and token
	rowBase []int   // first index of each request in rowAt
}

// Prepare fills the arrays that attention reads. It reads the batch, its page tables and its states, and does not use
// the device.
func (s *Pass) Prepare(b *Batch, block attn.Block) error {
	f := &s.fill
	*f = filler{inputArrays: inputArraysOf(block.Array), batch: b, width: s.plan.TablePages, rowAt: f.rowAt[:0],
		rowBase: f.rowBase[:0]}
	clear(f.groupStart)
	clear(f.start)
	b.FillTable(f.table, b.Tables, 0)
	for r := range b.Batch.Batch.Requests {
		f.rowBase = append(f.rowBase, len(f.rowAt))
		for range b.Batch.Batch.Rows(b.Config, r) {
			f.rowAt = append(f.rowAt, -1)
		}
	}
	if err := b.Rows(func(r attn.Row) error { return f.row(s, r) }); err != nil {
		return err
	}
	for i := range s.plan.Segments {
		g := &s.plan.Segments[i]
		for j := range g.Launches {
			f.launch(g, &g.Launches[j])
		}
	}
	f.closing()
	if len(f.spans) > 0 {
		f.sequences()
	}
	return nil
}

// row writes the arrays of one row. A padding row has no slot and attends to no token.
func (f *filler) row(s *Pass, r attn.Row) error {
	i, p, seen := r.Index, r.Position, 0
	f.rowAt[f.rowBase[r.Request]+r.Token] = int32(i)
	f.request[i], f.position[i], f.slots[i] = int32(r.Request), int32(max(p, 0)), -1
	if len(f.snapshots) > 0 {
		f.snapshots[i] = -1
	}
	if f.batch.States[r.Request] != nil {
		if p < 0 {
			return plan.ErrLengths("request %d from position %d, but sequences begin at position 0 or "+
				"later", r.Request, p)
		}
		f.slots[i], seen = f.place(r.Request, p, 1), p+1
		if page := f.batch.PageTokens; seen%page == 0 && len(f.snapshots) > 0 {
			w := f.batch.windows(r.Request)[p/page]
			if int(w) >= f.batch.Pages {
				return plan.ErrTableRange(r.Request, w, f.batch.Pages)
			}
			f.snapshots[i] = w // negative if the page has no window page
		}
	}
	f.lens[i], f.groups[i] = int32(seen), int32(seen/Pool)
	f.kept[i] = min(f.groups[i], int32(s.params.TopK))
	return nil
}

// place returns the slot of position p of request r in a pool with one entry for every ratio tokens.
func (f *filler) place(r, p, ratio int) int32 {
	n := f.batch.PageTokens
	return f.table[r*f.width+p/n]*int32(n/ratio) + int32(p%n/ratio)
}

// launch lists the rows and the keys that a launch gathers.
func (f *filler) launch(g *plan.Segment, l *plan.Launch) {
	first, last := attn.LaunchRows(g, l)
	if l.Gather.Count > 0 {
		attn.Gather{Request: f.request, Lens: f.lens, Start: f.start}.Fill(f.gather[l.Gather.First:l.Gather.End()],
			first, last, func(r, i int) int32 { return f.place(r, i, 1) })
	}
	if l.Index.Count > 0 {
		attn.Gather{Request: f.request, Lens: f.groups, Start: f.groupStart}.Fill(
			f.groupSlots[l.Index.First:l.Index.End()], first, last,
			func(r, i int) int32 { return f.place(r, i*Pool, Pool) })
	}
}

// closing lists the pools that are completed in the pass, and where raw rows of incomplete pools are stored. The plan
// has space for as many pools as the rows of a request can complete; unused entries have no source and no slot.
func (f *filler) closing() {
	fill(f.keep, -1)
	n, b := 0, f.batch
	for r := range b.Batch.Batch.Requests {
		last := n + b.Batch.Batch.Closing(b.Config, r, Pool)
		if st := b.States[r]; st != nil {
			n = f.closed(r, st, n)
		}
		for ; n < last; n++ {
			f.closeSlots[n] = -1
			fill(f.closeSources[n*Pool:(n+1)*Pool], -1)
		}
	}
}

// closed lists the pools that request r completes, starting at entry n, and returns the number of the next entry.
func (f *filler) closed(r int, st *State, n int) int {
	first := f.batch.Batch.Batch.FirstPosition(f.batch.Config, r)
	end := first + f.batch.Batch.Batch.Rows(f.batch.Config, r)
	row := func(p int) int32 { return f.rowAt[f.rowBase[r]+p-first] }
	for p := max(first, end-ringRows); p < end; p++ {
		f.keep[row(p)] = int32(st.slot*ringRows + p%ringRows)
	}
	for p := first/Pool*Pool + Pool - 1; p < end; p += Pool {
		f.closeSlots[n] = f.place(r, p, Pool)
		for i := range Pool {
			if q := p + 1 - Pool + i; q >= first {
				f.closeSources[n*Pool+i] = row(q)
			} else {
				f.closeSources[n*Pool+i] = int32(-2 - (st.slot*ringRows + q%ringRows))
			}
		}
		n++
	}
	return n
}

// sequences lists the rows of each sequence in the order of positions, with the slot of its state.
func (f *filler) sequences() {
	copy(f.stateRows, f.rowAt)
	for r := range f.batch.Batch.Batch.Requests {
		span := f.spans[r*plan.StateSpanWords : (r+1)*plan.StateSpanWords]
		span[0], span[1] = int32(f.rowBase[r]), int32(f.batch.Batch.Batch.Rows(f.batch.Config, r))
		span[2], span[3], span[4], span[5] = -1, 0, 0, 0
		if st := f.batch.States[r]; st != nil {
			if span[2], span[4] = int32(st.slot), int32(st.len-st.base); st.len == 0 {
				span[3] = 1
			}
			if f.batch.Holds(r) {
				span[5] = 1
			}
		}
		if len(f.stateFirst) > 0 {
			f.stateFirst[r] = int32(max(f.batch.Batch.Batch.FirstPosition(f.batch.Config, r), 0))
		}
	}
}

func fill(to []int32, v int32) {
	for i := range to {
		to[i] = v
	}
}
