package dual

import (
	"fmt"

	"sparrow/internal/attn"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// DraftRing is the number of entries that the drafting block stores for a sequence: a window, and space for drafts that
// may be rejected.
const DraftRing = 256

// draftMark is the range of valid entries of a sequence's ring: the positions [low, high).
type draftMark struct{ epoch, low, high int }

// DraftCache holds the entries of the drafting block, one ring for each state. The entries are not stored in pages, so
// a sequence that begins after cached pages first drafts with a shorter window.
type DraftCache struct {
	dev   kernel.Device
	pool  kernel.Pool // a page of DraftRing entries for each slot of a state; not given if there are no drafts
	epoch int         // number of allocations of the pool; entries with an earlier number are invalid
	entry layout.V4   // nil if there are no drafts
}

// NewDraftCache makes an empty cache.
func NewDraftCache(dev kernel.Device) *DraftCache { return &DraftCache{dev: dev} }

// Use sets the layout of entries (nil disables drafting) and allocates rings for the given number of states.
func (c *DraftCache) Use(entry layout.V4, slots int) error {
	c.entry = entry
	return c.Grow(slots)
}

// Given reports whether drafting is enabled.
func (c *DraftCache) Given() bool { return c.entry != nil }

// Grow allocates the rings of the given number of slots. Existing entries become invalid: the next drafts are made with
// a shorter window, which does not change the output.
func (c *DraftCache) Grow(slots int) error {
	if c.pool.Mem.Given() {
		c.dev.Free(c.pool.Mem.Buf)
		c.pool = kernel.Pool{}
	}
	c.epoch++
	if c.entry == nil || slots == 0 {
		return nil
	}
	mem, err := kernel.New(c.dev, kernel.U8, slots, c.entry.PageBytes(DraftRing))
	c.pool = kernel.Pool{Mem: mem, Layout: c.entry.Kind(), PageTokens: DraftRing}
	return err
}

// WindowPass is attention over a window in one pass of the drafting block. For each request it computes only the last
// rows, to which later rows attend: R rows in total, ordered by request.
type WindowPass struct {
	*Attention
	plan                       *plan.Plan
	own                        plan.Run // the rank's part of the R rows; all unless requests are divided among ranks
	cache                      *DraftCache
	place, slots, lens, window kernel.Tensor
	angles                     kernel.Tensor // f32 [R, 64]
	projected                  projected
	// Kept is the arena's mark after the tensors that are used until the end of the pass.
	Kept int64
}

// ArrangeWindow takes the tensors of a pass of the drafting block from an arena.
func (a *Attention) ArrangeWindow(p *plan.Plan, in attn.Inputs, mem *kernel.Arena, c *DraftCache) *WindowPass {
	s := &WindowPass{Attention: a, plan: p, own: p.Share(a.list.Ranks().Rank).Drafted, cache: c}
	rows := func(name plan.ArrayName) kernel.Tensor { return s.rows(in.Array(name)) }
	s.place, s.slots, s.lens, s.window = rows(plan.Positions), rows(plan.Slots), rows(plan.WindowLengths),
		rows(plan.WindowIndices)
	s.angles = mem.Take(kernel.F32, s.place.Rows, 2*a.main.Cols)
	s.Kept = mem.Mark()
	s.projected.arrange(a, mem, s.place.Rows)
	return s
}

// rows returns the rank's rows of a tensor that has all R rows.
func (s *WindowPass) rows(t kernel.Tensor) kernel.Tensor {
	return attn.OwnRows(t, s.own.First, s.own.Count)
}

// Attend stores the rows' entries in their rings and computes attention over the rings.
func (s *WindowPass) Attend(w *Weights, out, x kernel.Tensor) {
	if s.own.Count > 0 {
		s.attendOwn(w, s.rows(out), s.rows(x))
	}
	attn.Join(s.list, out, s.plan.DraftBounds)
}

func (s *WindowPass) attendOwn(w *Weights, out, x kernel.Tensor) {
	p := &s.projected
	s.list.Add(kernel.AngleArgs{Out: s.angles, Positions: s.place, InvFreq: s.main, Scale: 1})
	s.project(p, w, projection{window: s.cache.pool, x: x, angles: s.angles, slots: s.slots})
	s.list.Add(kernel.DualArgs{Out: p.out, Q: p.q, Sinks: w.Sinks, Heads: s.params.Heads, Scale: s.scale,
		Window: kernel.Stream{Pool: s.cache.pool, Indices: s.window, Lens: s.lens}})
	s.output(p, w, out, s.angles)
}

// WindowRow is one computed row of the drafting block.
type WindowRow struct {
	Index   int // number of the row among the computed rows
	Request int
	Token   int // index among the request's rows
	Last    bool
}

// Prepare chooses the rows to compute, lists the entries that they attend to, and calls visit for each row.
func (s *WindowPass) Prepare(b *attn.Batch, states []*State, block attn.Block, visit func(WindowRow) error) error {
	position, slots, lens := block.Array(plan.Positions), block.Array(plan.Slots), block.Array(plan.WindowLengths)
	window, width := block.Array(plan.WindowIndices), s.plan.Input(plan.WindowIndices).Cols
	draftRows, i := block.Array(plan.DraftRows), 0
	return b.Batch.ByRank(b.Config, func(r int) error {
		st := states[r] // nil for padding, whose rows store nothing and attend to nothing
		first, n := b.Batch.FirstPosition(b.Config, r), b.Batch.Rows(b.Config, r)
		skip := max(n-s.params.Window, 0)
		if st != nil {
			st.mark(s.cache.epoch, first, first+skip, first+n)
		}
		for t := skip; t < n; t++ {
			row, err := attn.RowOf(s.plan, r, t)
			if err != nil {
				return err
			}
			position[i], slots[i], lens[i], draftRows[i] = 0, -1, 0, row
			places := window[i*width : (i+1)*width]
			fill(places, -1)
			if st != nil {
				p, base := first+t, int32(st.slot*DraftRing)
				from := max(p-s.params.Window+1, st.draft.low)
				position[i], slots[i], lens[i] = int32(p), base+int32(p%DraftRing), int32(p-from+1)
				for q := from; q <= p; q++ {
					places[q-from] = base + int32(q%DraftRing)
				}
			}
			if err := visit(WindowRow{Index: i, Request: r, Token: t, Last: t == n-1}); err != nil {
				return fmt.Errorf("request %d: %w", r, err)
			}
			i++
		}
		return nil
	})
}

// ForgetDrafts marks every entry of the ring as invalid. It is called after a failed pass of the drafting block.
func (s *State) ForgetDrafts() { s.draft = draftMark{} }

// mark records that entries of positions [kept, end) are about to be written, in a pass whose rows begin at position
// first. If positions are missing before the new entries, all earlier entries become invalid.
func (s *State) mark(epoch, first, kept, end int) {
	d := &s.draft
	if d.epoch != epoch || first > d.high || kept > first {
		*d = draftMark{epoch: epoch, low: kept}
	}
	d.low, d.high = min(d.low, kept), end
}
