package dual

import (
	"fmt"

	"sparrow/internal/attn"
	"sparrow/plan"
)

// sharedArrays are the input arrays of a pass of DeepSeek-V4.1, in host memory or on the device.
type sharedArrays[T any] struct {
	request, position, slots, windowLen    T // [T, 1]
	window                                 T // [T, width]
	groups, kept, keep                     T // [T, 1]: for entries of two tokens
	entries, entriesKept, entrySlots       T // [T, 1]: for entries of one token
	blockCounts, candidateKeys, rowNumbers T // [T, 1]
	table                                  T // [requests, width]
	sources, closeSlots, place             T // [n, 2], [n, 1], [n, 1]: for completed entries of two tokens
}

func sharedArraysOf[T any](array func(plan.ArrayName) T) sharedArrays[T] {
	return sharedArrays[T]{request: array(plan.RowRequests), position: array(plan.Positions), slots: array(plan.Slots),
		windowLen: array(plan.WindowLengths), window: array(plan.WindowIndices), groups: array(plan.Groups),
		kept: array(plan.Kept), keep: array(plan.KeepRows), entries: array(plan.Entries),
		entriesKept: array(plan.EntriesKept), entrySlots: array(plan.EntrySlots), blockCounts: array(plan.BlockCounts),
		candidateKeys: array(plan.CandidateCounts), rowNumbers: array(plan.RowNumbers), table: array(plan.PageTable),
		sources: array(plan.CloseSources), closeSlots: array(plan.CloseSlots), place: array(plan.ClosePositions)}
}

// eachRow calls visit for the arrays that have a row for every row of the pass.
func (a *sharedArrays[T]) eachRow(visit func(*T)) {
	for _, x := range []*T{&a.request, &a.position, &a.slots, &a.windowLen, &a.window, &a.groups, &a.kept, &a.keep,
		&a.entries, &a.entriesKept, &a.entrySlots, &a.blockCounts, &a.candidateKeys, &a.rowNumbers} {
		visit(x)
	}
}

// sharedFiller writes the arrays of one pass into host memory.
type sharedFiller struct {
	sharedArrays[[]int32]
	filler // page tables and slots of window entries
}

// Prepare fills the arrays that attention reads. It reads the batch, its page tables and its states, and does not use
// the device.
func (s *SharedPass) Prepare(b *Batch, block attn.Block) error {
	f := &s.fill
	keep := f.filler
	f.sharedArrays = sharedArraysOf(block.Array)
	f.filler = filler{batch: b, width: s.plan.TablePages, rowAt: keep.rowAt[:0], rowBase: keep.rowBase[:0],
		windows: keep.windows, tables: keep.tables[:0], windowWidth: s.plan.Input(plan.WindowIndices).Cols}
	f.filler.table = f.sharedArrays.table
	if err := f.fillTables(); err != nil {
		return err
	}
	sharing := &b.Config.Model.Sharing
	blocks := 1 // tokens per entry of the layer that selects candidate blocks
	if c := sharing.Candidates; c < len(b.Config.Model.Ratios) {
		blocks = max(b.Config.Model.Ratios[c], 1)
	}
	if err := b.Rows(func(r attn.Row) error { return f.row(s, r, sharing, blocks) }); err != nil {
		return err
	}
	if rows := len(f.sharedArrays.request); rows <= attn.PieceRows {
		f.lists(0, rows)
	} else {
		attn.InPieces(0, rows, f.lists)
	}
	f.close(s)
	return nil
}

// lists writes the slots of the window entries of the rows [first, last).
func (f *sharedFiller) lists(first, last int) {
	a := &f.sharedArrays
	for i := first; i < last; i++ {
		n := int(a.windowLen[i])
		from := int(a.position[i]) - n + 1
		window := a.window[i*f.windowWidth : (i+1)*f.windowWidth]
		for j := range n {
			window[j] = f.windowPlace(int(a.request[i]), from+j)
		}
		fill(window[n:], -1)
	}
}

// row writes the arrays of one row. A padding row has no slot and attends to no token.
func (f *sharedFiller) row(s *SharedPass, r attn.Row, sharing *plan.Sharing, ratio int) error {
	a, i, p, seen := &f.sharedArrays, r.Index, r.Position, 0
	f.rowAt[f.rowBase[r.Request]+r.Token] = int32(i)
	a.request[i], a.position[i], a.slots[i] = int32(r.Request), int32(max(p, 0)), -1
	real := f.batch.States[r.Request] != nil
	if real {
		if p < 0 {
			return &plan.Error{Code: plan.E22, Asked: fmt.Sprintf("request %d from position %d", r.Request, p),
				Supported: "sequences that begin at position 0 or later"}
		}
		if err := f.checkWindows(r.Request, p, s.params.Window); err != nil {
			return err
		}
		a.slots[i], seen = f.windowPlace(r.Request, p), p+1
	}
	a.windowLen[i] = int32(min(seen, s.params.Window))
	if len(a.groups) > 0 {
		a.groups[i], a.kept[i] = int32(seen/2), int32(min(seen/2, s.params.TopK))
		a.keep[i] = -1
	}
	if len(a.entries) > 0 {
		a.entries[i], a.entriesKept[i], a.entrySlots[i] = int32(seen), int32(min(seen, s.params.TopK)), -1
		if real {
			a.entrySlots[i] = f.filler.place(r.Request, p, 1)
		}
	}
	keys := seen / ratio
	a.blockCounts[i], a.candidateKeys[i] = int32(sharing.BlocksOf(keys)), int32(sharing.KeptOf(keys))
	a.rowNumbers[i] = int32(i - s.plan.Share(f.batch.Batch.Batch.Requests[r.Request].Rank).FirstRow)
	return nil
}

// close lists the pairs of tokens that the pass completes, and where raw rows of incomplete pairs are stored.
func (f *sharedFiller) close(s *SharedPass) {
	a, b, n := &f.sharedArrays, f.batch, 0
	if len(a.keep) == 0 {
		return
	}
	const ratio = 2
	c := closingArrays[[]int32]{sources: a.sources, slots: a.closeSlots, place: a.place, keep: a.keep}
	_ = b.Batch.Batch.ByRank(b.Config, func(r int) error { // visit never returns an error
		last := n + b.Batch.Batch.Closing(b.Config, r, ratio)
		n = f.closed(c, closer{request: r, ratio: ratio, ring: ringOf(ratio), width: ratio,
			own: int32(s.plan.Share(b.Batch.Batch.Requests[r].Rank).FirstRow)}, n)
		for ; n < last; n++ {
			c.slots[n], c.place[n] = -1, 0
			fill(c.sources[n*ratio:(n+1)*ratio], -1)
		}
		return nil
	})
}
