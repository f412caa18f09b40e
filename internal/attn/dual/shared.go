package dual

import (
	"fmt"

	"sparrow/internal/attn"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// Attention of DeepSeek-V4.1 (v41 spec, 2.2 to 2.4). Each layer has its own window. In addition there are entries of
// one or two tokens: a few layers compute entries, and each other layer reads the entries of the last such layer before
// it. Fewer layers have an indexer that selects entries; the other layers use the latest selection. One layer also
// selects blocks of entries, and later indexers select only inside these blocks.

// SharedLayer describes the data that a layer reads from other layers.
type SharedLayer struct {
	*Weights             // Compress is set if the layer computes entries, Index if it selects entries
	Entries  kernel.Pool // pool of the entries that the layer reads
	Keys     kernel.Pool // pool of the indexer keys of these entries
	Window   kernel.Pool
	Publish  bool // the layer selects the candidate blocks
	Within   bool // the layer selects only inside the candidate blocks
}

// SharedPass is the attention of every layer in one forward pass. T is the number of rows for which the rank computes
// attention.
type SharedPass struct {
	*Attention
	plan *plan.Plan
	own  plan.Share

	sharedArrays[kernel.Tensor]
	main, far kernel.Tensor // f32 [T, 64]: angles
	closing   struct {
		angles  kernel.Tensor // f32 [n, 64]
		entries kernel.Tensor // [n, dim]
		latents kernel.Tensor // [n, dim]: entries, normalised and not rotated
		keys    kernel.Tensor // [n, 128]
	}
	single struct { // tensors of layers whose entries have one token, [T, ...]
		entries, latents, keys kernel.Tensor
	}
	selected, scores kernel.Tensor // i32 and f32 [T, K]: entries that the latest indexer selected, and their scores
	all              selection     // selection for all rows of the pass
	blocks           kernel.Tensor // i32 [rows of the pass, most blocks]: candidate blocks
	candidates       attn.Candidates
	projected        projected
	raw              rawRows // raw rows from which entries of two tokens are computed
	launches         []launch
	// Kept is the arena's mark after the tensors that later layers read.
	Kept int64

	fill sharedFiller
}

// ArrangeShared takes the tensors of a pass of DeepSeek-V4.1 from an arena.
func (a *Attention) ArrangeShared(p *plan.Plan, in attn.Inputs, mem *kernel.Arena, l Layouts) (*SharedPass, error) {
	own := p.Share(a.list.Ranks().Rank)
	t, k := own.Rows, a.params.TopK
	s := &SharedPass{Attention: a, plan: p, own: own, sharedArrays: sharedArraysOf(in.Array)}
	s.eachRow(func(x *kernel.Tensor) { *x = s.rows(*x) })
	for _, x := range []*kernel.Tensor{&s.sources, &s.closeSlots, &s.place} {
		*x = attn.OwnRows(*x, own.Light.First, own.Light.Count)
	}
	s.main, s.far = mem.Take(kernel.F32, t, 2*a.main.Cols), mem.Take(kernel.F32, t, 2*a.far.Cols)
	s.all.groups = mem.Take(kernel.I32, p.Rows, k)
	s.selected = s.rows(s.all.groups)
	if p.Record.Scores {
		s.all.scores = mem.Take(kernel.F32, p.Rows, k)
		s.scores = s.rows(s.all.scores)
	}
	s.blocks = mem.Take(kernel.I32, p.Rows, a.params.Blocks)
	s.candidates = attn.Candidates{Blocks: s.rows(s.blocks), Counts: s.blockCounts,
		Keys: s.candidateKeys, Rows: s.rowNumbers}
	n := s.closeSlots.Rows
	s.closing.angles = mem.Take(kernel.F32, n, 2*a.far.Cols)
	s.Kept = mem.Mark()
	c := &s.closing
	c.entries, c.latents, c.keys = mem.Take(a.act, n, a.params.Dim), mem.Take(a.act, n, a.params.Dim),
		mem.Take(a.act, n, layout.IndexDim)
	x := &s.single
	x.entries, x.latents, x.keys = mem.Take(a.act, t, a.params.Dim), mem.Take(a.act, t, a.params.Dim),
		mem.Take(a.act, t, layout.IndexDim)
	s.projected.arrange(a, mem, t)
	if p.JointQueries {
		s.projected.joint = a.index.TakeQueries(mem, a.act, t)
	}
	s.raw = takeRaw(mem, t, a.params.Dim)
	mark := mem.Mark()
	for i := range p.Segments {
		g := &p.Segments[i]
		if g.Layout.String() != l.Entry.String() {
			return nil, plan.ErrLayout(g.Layout.String(), l.Entry.String())
		}
		if g.Form != plan.FormV4Paged {
			return nil, fmt.Errorf("dual: attention over shared entries does not support form %v", g.Form)
		}
		if p.Shares != nil && g.Rank != a.list.Ranks().Rank {
			continue
		}
		for j := range g.Launches {
			mem.Reset(mark)
			x := launch{segment: g, stage: fmt.Sprintf("attention of %v rows", g.Row)}
			x.first, x.last = attn.LaunchRows(g, &g.Launches[j])
			x.first, x.last = x.first-own.FirstRow, x.last-own.FirstRow
			var err error
			if x.space, err = s.index.Arrange(mem, p, g, &g.Launches[j], l.Index, s.act); err != nil {
				return nil, err
			}
			mem.Reset(mark) // selection ends before attention begins, so both use this memory
			x.indices = mem.Take(kernel.I32, x.last-x.first, k)
			if x.first < x.last {
				s.launches = append(s.launches, x)
			}
		}
	}
	return s, nil
}

// rows returns the rank's rows of a tensor that has all rows of the pass.
func (s *SharedPass) rows(t kernel.Tensor) kernel.Tensor {
	return attn.OwnRows(t, s.own.FirstRow, s.own.Rows)
}

// Begin adds the operations whose results every layer reads: the rotation angles of rows and of completed pairs of
// tokens.
func (s *SharedPass) Begin() {
	if s.own.Rows == 0 {
		return
	}
	s.list.Add(kernel.AngleArgs{Out: s.main, Positions: s.position, InvFreq: s.Attention.main, Scale: 1})
	s.list.Add(kernel.AngleArgs{Out: s.far, Positions: s.position, InvFreq: s.Attention.far, Scale: 1})
	if s.place.Rows > 0 {
		s.list.Add(kernel.AngleArgs{Out: s.closing.angles, Positions: s.place, InvFreq: s.Attention.far, Scale: 1})
	}
}

// Layer writes the attention output of a layer for x, normalised rows of the pass in plan order, to out. With several
// ranks, out is then complete on all ranks. tap records or replaces the layer's selection.
func (s *SharedPass) Layer(layer int, w *SharedLayer, out, x kernel.Tensor, tap attn.Tap) {
	if s.own.Rows > 0 {
		s.attendOwn(layer, w, s.rows(out), s.rows(x), tap)
	}
	if w.Index != nil {
		tap.Record(s.list, s.all.groups, s.all.scores, s.plan.RowBounds)
		tap.RecordBlocks(s.list, s.blocks, s.plan.RowBounds)
	}
	attn.Join(s.list, out, s.plan.RowBounds)
}

// Context stores the data that a drafting stage needs for the tokens of the pass; see [Pass.Context].
func (s *SharedPass) Context(w *Weights, window kernel.Pool, u kernel.Tensor) {
	if s.own.Rows == 0 {
		return
	}
	s.list.Add(kernel.MultiplyArgs{Out: s.projected.kv, X: s.rows(u), W: w.KV})
	s.list.Add(kernel.EntryStoreArgs{Rows: s.projected.kv, Norm: w.KVNorm, Eps: s.params.Eps, Angles: s.main,
		Slots: s.slots, Pool: window})
}

// attendOwn writes the attention output of the rank's rows. It first stores all new rows of the pass in the caches, so
// that a query whose token completes a pair attends to the new entry.
func (s *SharedPass) attendOwn(layer int, w *SharedLayer, out, x kernel.Tensor, tap attn.Tap) {
	angles := s.far
	if w.Ratio == 0 {
		angles = s.main
	}
	p := &s.projected
	var to []kernel.Projection
	switch {
	case w.Compress == nil:
	case w.Ratio == 1:
		to = append(to, kernel.Projection{Out: s.single.entries, W: w.Compress.Values})
	default:
		to = rawProducts(to, s.raw, w.Compress)
	}
	s.project(p, w.Weights, projection{window: w.Window, x: x, angles: angles, slots: s.slots, to: to,
		joint: w.Index != nil && s.plan.JointQueries})
	s.compress(layer, w)
	for i := range s.launches {
		l := &s.launches[i]
		s.list.At(l.stage, layer)
		if w.Index != nil {
			s.choose(l, w, x, angles)
			tap.Replace(s.list, s.all.groups)
		}
		s.attend(l, w)
	}
	s.list.At("attention", layer)
	s.output(p, w.Weights, out, angles)
}

// compress stores the entries of the pass and their indexer keys, which are computed from the entries before rotation.
func (s *SharedPass) compress(layer int, w *SharedLayer) {
	if w.Compress == nil {
		return
	}
	s.list.At("compressor", layer)
	entries, latents, keys, angles, slots := s.single.entries, s.single.latents, s.single.keys, s.far, s.entrySlots
	if w.Ratio > 1 {
		c, ring := &s.closing, s.States.rings[layer].Main
		entries, latents, keys, angles, slots = c.entries, c.latents, c.keys, c.angles, s.closeSlots
		if slots.Rows > 0 {
			s.list.Add(kernel.CompressArgs{Out: entries, Values: s.raw.values(), Gates: s.raw.gates(), State: ring,
				APE: w.Compress.APE, Sources: s.sources, Ratio: w.Ratio})
		}
		s.list.Add(kernel.PutArgs{Out: ring, X: s.raw.Tensor, Rows: s.keep})
	}
	if slots.Rows == 0 {
		return
	}
	s.list.Add(kernel.EntryStoreArgs{Rows: entries, Norm: w.Compress.Norm, Eps: s.params.Eps, Angles: angles,
		Slots: slots,
		Pool:  w.Entries})
	s.list.Add(kernel.NormArgs{Out: latents, X: entries, Weight: w.Compress.Norm, Eps: s.params.Eps})
	s.list.Add(kernel.MultiplyArgs{Out: keys, X: latents, W: w.Index.Key})
	s.list.Add(kernel.KeyStoreArgs{Keys: keys, Norm: w.Index.KeyNorm, Eps: s.params.Eps, Angles: angles, Slots: slots,
		Pool: w.Keys})
}

// choose selects entries for the rows of the launch. Entries are numbered from the beginning of the sequence.
func (s *SharedPass) choose(l *launch, w *SharedLayer, hidden, angles kernel.Tensor) {
	x := attn.Selection{Plan: l.segment, Space: &l.space, First: l.first, Last: l.last,
		Q: w.Index.Q, W: w.Index.Weights, Latent: s.projected.qr, Hidden: hidden, Computed: s.projected.joint,
		Angles: angles, Out: s.selected, Values: s.scores, Lens: s.groups, Cache: w.Keys, Table: s.table,
		Request: s.request}
	if w.Ratio == 1 {
		x.Lens = s.entries
	}
	switch {
	case w.Publish:
		x.Publish = &s.candidates
	case w.Within:
		x.Within = &s.candidates
	}
	s.index.Select(s.list, &x)
}

// attend computes attention over window entries and selected entries, which it reads in the cache.
func (s *SharedPass) attend(l *launch, w *SharedLayer) {
	rows := func(t kernel.Tensor) kernel.Tensor { return t.Slice(l.first, l.last) }
	a := kernel.DualArgs{Out: rows(s.projected.out), Q: rows(s.projected.q), Sinks: w.Sinks, Heads: s.params.Heads,
		Scale: s.scale, Window: kernel.Stream{Pool: w.Window, Indices: rows(s.window), Lens: rows(s.windowLen)}}
	if w.Ratio > 0 {
		kept := s.kept
		if w.Ratio == 1 {
			kept = s.entriesKept
		}
		s.list.Add(kernel.LocateArgs{Out: l.indices, Positions: rows(s.selected), Table: s.table,
			TableRow: rows(s.request), PageTokens: w.Entries.PageTokens})
		a.Extra = kernel.Stream{Pool: w.Entries, Indices: l.indices, Lens: rows(kept)}
	}
	s.list.Add(a)
}
