package dual

import (
	"fmt"

	"sparrow/internal/attn"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// Context stores the data that a drafting stage needs for the pass's tokens (dspark spec, 3.2): an entry for each
// token, computed from u [T, hidden] by the stage's projection, in the stage's pool of window entries. Entries of
// rejected drafts are overwritten when their positions are computed again.
func (s *Pass) Context(w *Weights, window kernel.Pool, u kernel.Tensor) {
	if s.own.Rows == 0 {
		return
	}
	s.list.Add(kernel.MultiplyArgs{Out: s.projected.kv, X: s.rows(u), W: w.KV})
	s.list.Add(kernel.EntryStoreArgs{Rows: s.projected.kv, Norm: w.KVNorm, Eps: s.params.Eps, Angles: s.mainAngles,
		Slots: s.slots, Pool: window})
}

// BlockPass is attention of the drafting stages in one pass (dspark spec, 3.3). Every row of a block attends to the
// window of tokens before the block, whose entries passes of the target have stored, and to all rows of the block,
// including later rows. The entries of the block are temporary memory of the pass.
type BlockPass struct {
	*Attention
	plan                       *plan.Plan
	own                        plan.Run // the rank's rows; all rows unless ranks divide attention by requests
	place, slots, lens, window kernel.Tensor
	blockLens, block           kernel.Tensor
	angles                     kernel.Tensor // f32 [R, 64]
	scratch                    kernel.Pool   // one entry for each row
	projected                  projected
	// Kept is the arena's mark after the tensors that are used until the end of the pass.
	Kept int64
}

// scratchPage is the number of entries of a page in the temporary pool of the blocks' entries.
const scratchPage = 64

// ArrangeBlock takes the tensors of a pass of the drafting stages from an arena. entry is the layout of entries.
func (a *Attention) ArrangeBlock(p *plan.Plan, in attn.Inputs, mem *kernel.Arena, entry layout.V4) *BlockPass {
	s := &BlockPass{Attention: a, plan: p, own: p.Share(a.list.Ranks().Rank).Drafted}
	rows := func(name plan.ArrayName) kernel.Tensor { return s.rows(in.Array(name)) }
	s.place, s.slots, s.lens, s.window = rows(plan.Positions), rows(plan.Slots), rows(plan.WindowLengths),
		rows(plan.WindowIndices)
	s.blockLens, s.block = rows(plan.BlockLengths), rows(plan.BlockIndices)
	s.angles = mem.Take(kernel.F32, s.place.Rows, 2*a.main.Cols)
	s.Kept = mem.Mark()
	pages := (p.Rows + scratchPage - 1) / scratchPage
	s.scratch = kernel.Pool{Mem: mem.Take(kernel.U8, pages, entry.PageBytes(scratchPage)), Layout: entry.Kind(),
		PageTokens: scratchPage}
	s.projected.arrange(a, mem, s.place.Rows)
	return s
}

// rows returns the rank's rows of a tensor that has all rows.
func (s *BlockPass) rows(t kernel.Tensor) kernel.Tensor {
	return attn.OwnRows(t, s.own.First, s.own.Count)
}

// Begin adds the operation whose result every stage reads: the rotation angles of rows.
func (s *BlockPass) Begin() {
	if s.own.Count > 0 {
		s.list.Add(kernel.AngleArgs{Out: s.angles, Positions: s.place, InvFreq: s.main, Scale: 1})
	}
}

// Attend writes the attention output of a stage for x, normalised rows of all blocks, to out. window is the pool of
// the stage's entries.
func (s *BlockPass) Attend(w *Weights, window kernel.Pool, out, x kernel.Tensor) {
	if s.own.Count > 0 {
		p := &s.projected
		s.project(p, w, projection{window: s.scratch, x: s.rows(x), angles: s.angles, slots: s.slots})
		s.list.Add(kernel.DualArgs{Out: p.out, Q: p.q, Sinks: w.Sinks, Heads: s.params.Heads, Scale: s.scale,
			Window: kernel.Stream{Pool: window, Indices: s.window, Lens: s.lens},
			Extra:  kernel.Stream{Pool: s.scratch, Indices: s.block, Lens: s.blockLens}})
		s.output(p, w, s.rows(out), s.angles)
	}
	attn.Join(s.list, out, s.plan.DraftBounds)
}

// BlockBatch holds a batch of blocks, its plan, and the window pages of its sequences.
type BlockBatch struct {
	*attn.Batch
	Windows [][]int32 // window pages of each request; see Batch.Windows
	Pages   int       // window pages of the cache
}

// Prepare lists the entries that the rows attend to, and calls visit with the number of each row, its request and its
// index in the block.
func (s *BlockPass) Prepare(b *BlockBatch, block attn.Block, visit func(row, request, place int) error) error {
	position, slots, lens := block.Array(plan.Positions), block.Array(plan.Slots), block.Array(plan.WindowLengths)
	window, width := block.Array(plan.WindowIndices), s.plan.Input(plan.WindowIndices).Cols
	blockLens, own, ownWidth := block.Array(plan.BlockLengths), block.Array(plan.BlockIndices),
		s.plan.Input(plan.BlockIndices).Cols
	draftRows, i := block.Array(plan.DraftRows), 0
	pages := Batch{Batch: b.Batch, Windows: b.Windows, Pages: b.Pages}
	return b.Batch.Batch.ByRank(b.Config, func(r int) error {
		n, padding := b.Batch.Batch.Rows(b.Config, r), b.Batch.Batch.Requests[r].Padding
		first := b.Batch.Batch.FirstPosition(b.Config, r) // first position of the block
		from := max(first-s.params.Window, 0)
		if !padding {
			if err := pages.holds(r, from, first); err != nil {
				return err
			}
		}
		begin := int32(i)
		for t := range n {
			row, err := attn.RowOf(s.plan, r, t)
			if err != nil {
				return err
			}
			position[i], slots[i], lens[i], blockLens[i], draftRows[i] = 0, -1, 0, 0, row
			seen, mine := window[i*width:(i+1)*width], own[i*ownWidth:(i+1)*ownWidth]
			fill(seen, -1)
			fill(mine, -1)
			if !padding {
				position[i], slots[i] = int32(first+t), int32(i)
				lens[i], blockLens[i] = int32(first-from), int32(n)
				for p := from; p < first; p++ { // the next block has most slots at the same indices
					seen[p%s.params.Window] = pages.windowSlot(r, p)
				}
				for k := range n {
					mine[k] = begin + int32(k)
				}
			}
			if err := visit(i, r, t); err != nil {
				return fmt.Errorf("request %d: %w", r, err)
			}
			i++
		}
		return nil
	})
}

// holds checks that the positions [from, end) of request r have window pages.
func (b *Batch) holds(r, from, end int) error {
	tables := b.windows(r)
	for p := from; p < end; p = (p/b.PageTokens + 1) * b.PageTokens {
		i := p / b.PageTokens
		if i >= len(tables) || tables[i] < 0 {
			return &plan.Error{Code: plan.E22,
				Asked: fmt.Sprintf("a block of request %d at position %d, whose page %d has no window page", r, end,
					i),
				Supported: "sequences with window pages for all positions to which their blocks attend"}
		}
		if int(tables[i]) >= b.Pages {
			return plan.ErrTableRange(r, tables[i], b.Pages)
		}
	}
	return nil
}

// windowSlot returns the slot of position p of request r in a pool of window entries.
func (b *Batch) windowSlot(r, p int) int32 {
	return b.windows(r)[p/b.PageTokens]*int32(b.PageTokens) + int32(p%b.PageTokens)
}
