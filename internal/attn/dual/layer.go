package dual

import (
	"sparrow/internal/attn"
	"sparrow/kernel"
)

// projection holds the inputs of project.
type projection struct {
	window    kernel.Pool         // receives the pass's window entries
	x, angles kernel.Tensor       // normalised rows, and their angles
	slots     kernel.Tensor       // slots of the window entries
	joint     bool                // indexer queries are computed together with the products of x
	to        []kernel.Projection // further products of x
	then      func()              // adds the operations that need only these products; may be nil
}

// project computes queries and their latents, and stores the pass's window entries. Products of x are computed
// together.
func (a *Attention) project(p *projected, w *Weights, in projection) {
	to := append(in.to, kernel.Projection{Out: p.qr, W: w.QA}, kernel.Projection{Out: p.kv, W: w.KV})
	if in.joint {
		to = append(to, kernel.Projection{Out: p.joint.Weights, W: w.Index.Weights})
	}
	a.list.Add(kernel.ProjectArgs{X: in.x, To: to})
	a.list.Add(kernel.EntryStoreArgs{Rows: p.kv, Norm: w.KVNorm, Eps: a.params.Eps, Angles: in.angles,
		Slots: in.slots, Pool: in.window})
	if in.then != nil {
		in.then()
	}
	a.list.Add(kernel.NormArgs{Out: p.qr, X: p.qr, Weight: w.QNorm, Eps: a.params.Eps})
	to = []kernel.Projection{{Out: p.q, W: w.QB}}
	if in.joint {
		to = append(to, kernel.Projection{Out: p.joint.Q, W: w.Index.Q})
	}
	a.list.Add(kernel.ProjectArgs{X: p.qr, To: to})
	if !a.params.PlainHeads {
		a.list.Add(kernel.HeadNormArgs{X: p.q, Heads: a.params.Heads, Eps: a.params.Eps})
	}
	a.rotate(p.q, in.angles, false)
}

func (a *Attention) rotate(x, angles kernel.Tensor, inverse bool) {
	p := &a.params
	a.list.Add(kernel.RotateArgs{X: x, Angles: angles, Heads: p.Heads, HeadDim: p.Dim, Offset: p.Dim - p.Rope,
		Pairing: kernel.Interleaved, Inverse: inverse})
}

// output applies the inverse rotation to the heads, because the entries that serve as values are rotated, and projects
// each group of heads. With several ranks, each rank has the groups of its heads.
func (a *Attention) output(p *projected, w *Weights, out, angles kernel.Tensor) {
	a.rotate(p.out, angles, true)
	width, n := p.out.Cols/a.params.OGroups, a.params.OLora
	for g, m := range w.OA {
		a.list.Add(kernel.MultiplyArgs{Out: p.z.Columns(g*n, (g+1)*n), X: p.out.Columns(g*width, (g+1)*width), W: m})
	}
	a.list.Add(kernel.MultiplyArgs{Out: out, X: p.z, W: w.OB})
}

// closeAll computes the compressed entry and the indexer key of every group that is completed in this pass. Padding
// entries have no source. Its inputs are the first matrix products of the layer, so a device may run it in parallel
// with later operations.
func (s *Pass) closeAll(layer int, w *Weights) {
	e, rings := s.closing[w.Ratio], s.States.rings[layer]
	s.list.At("compressor", layer)
	s.closeGroups(w.Compress, e, e.entries, rings.Main, s.raw[w.Ratio])
	if w.Index != nil {
		s.list.At("indexer's compressor", layer)
		s.closeGroups(&w.Index.Compress, e, e.keys, rings.Index, s.key)
	}
	s.list.At("attention", layer)
}

// compress stores the entries and keys of completed groups, and the raw rows of incomplete groups. Padding entries have
// no slot.
func (s *Pass) compress(layer int, w *Weights, c Cache) {
	if w.Compress == nil {
		return
	}
	s.list.At("compressor", layer)
	e, rings := s.closing[w.Ratio], s.States.rings[layer]
	raw := s.raw[w.Ratio]
	if e.slots.Rows > 0 {
		s.list.Add(kernel.EntryStoreArgs{Rows: e.entries, Norm: w.Compress.Norm, Eps: s.params.Eps,
			Angles: e.angles, Slots: e.slots, Pool: c.Extra})
	}
	if w.Index == nil {
		s.keepRows(rings.Main, raw, e.keep)
		return
	}
	s.list.At("indexer's compressor", layer)
	x := &w.Index.Compress
	if e.slots.Rows > 0 {
		s.list.Add(kernel.KeyStoreArgs{Keys: e.keys, Norm: x.Norm, Eps: s.params.Eps, Angles: e.angles,
			Hadamard: attn.Hadamard(c.Index.Layout), Slots: e.slots, Pool: c.Index})
	}
	// These operations are adjacent, so that a device can run both in one launch.
	s.keepRows(rings.Main, raw, e.keep)
	s.keepRows(c.Tails.Main, raw, e.tail)
	s.keepRows(rings.Index, s.key, e.keep)
	s.keepRows(c.Tails.Index, s.key, e.tail)
}

// closeGroups computes the entries of completed groups from raw rows of the pass and of the ring.
func (s *Pass) closeGroups(c *Compressor, e *closing, out, ring kernel.Tensor, raw rawRows) {
	if out.Rows > 0 {
		s.list.Add(kernel.CompressArgs{Out: out, Values: raw.values(), Gates: raw.gates(), State: ring, APE: c.APE,
			Sources: e.sources, Ratio: c.Ratio, Overlap: Overlapped(c.Ratio)})
	}
}

// keepRows stores raw rows at the given positions; negative positions are skipped.
func (s *Pass) keepRows(to kernel.Tensor, raw rawRows, places kernel.Tensor) {
	s.list.Add(kernel.PutArgs{Out: to, X: raw.Tensor, Rows: places})
}

// paged computes attention over the pools in place.
func (s *Pass) paged(l *launch, w *Weights, c Cache) {
	rows := func(t kernel.Tensor) kernel.Tensor { return t.Slice(l.first, l.last) }
	a := kernel.DualArgs{Out: rows(s.projected.out), Q: rows(s.projected.q), Sinks: w.Sinks, Heads: s.params.Heads,
		Scale: s.scale, Window: kernel.Stream{Pool: c.Window, Indices: rows(s.window), Lens: rows(s.windowLen)}}
	switch w.Ratio {
	case IndexRatio:
		s.list.Add(kernel.LocateArgs{Out: l.indices, Positions: rows(s.selected), Table: s.table,
			TableRow: rows(s.request), PageTokens: c.Extra.PageTokens})
		a.Extra = kernel.Stream{Pool: c.Extra, Indices: l.indices, Lens: rows(s.kept)}
	case HeavyRatio:
		a.Extra = kernel.Stream{Pool: c.Extra, Indices: rows(s.heavy), Lens: rows(s.heavyLen)}
		a.MostExtra = max(s.params.MostHeavy, s.heavy.Cols)
	}
	s.list.Add(a)
}

// flat gathers the entries that the launch's rows attend to into a workspace, window entries first, and computes
// attention over it.
func (s *Pass) flat(l *launch, w *Weights, c Cache) {
	rows := func(t kernel.Tensor) kernel.Tensor { return t.Slice(l.first, l.last) }
	join := kernel.CombineArgs{Out: l.combined[w.Ratio], Lens: l.lengths, Window: rows(s.window),
		WindowLens: rows(s.windowLen), WindowBase: rows(s.windowBase)}
	var extra kernel.Tensor // slots of the compressed entries
	switch w.Ratio {
	case IndexRatio:
		extra, join.Extra, join.ExtraLens, join.ExtraBase = l.groups, rows(s.selected), rows(s.kept), rows(s.groupBase)
	case HeavyRatio:
		extra, join.Extra, join.ExtraLens, join.ExtraBase = l.heavy, rows(s.heavy), rows(s.heavyLen), rows(s.heavyBase)
	}
	n := l.window.Rows + extra.Rows
	kv := l.workspace.Slice(0, n)
	s.list.Add(kernel.UnpackArgs{Out: kv.Slice(0, l.window.Rows), Slots: l.window, Pool: c.Window})
	if extra.Rows > 0 {
		s.list.Add(kernel.UnpackArgs{Out: kv.Slice(l.window.Rows, n), Slots: extra, Pool: c.Extra})
	}
	s.list.Add(join)
	s.list.Add(kernel.FlatArgs{Out: rows(s.projected.out), Q: rows(s.projected.q), KV: kv, Indices: join.Out,
		Lens: join.Lens, Sinks: w.Sinks, Heads: s.params.Heads, Scale: s.scale})
}
