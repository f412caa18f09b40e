package v4

import (
	"math"

	"sparrow/kernel"
	"sparrow/layout"
)

// scale is the factor of attention scores: heads are normalised, and YaRN changes nothing here.
func (m *Model) scale() float32 { return float32(1 / math.Sqrt(float64(m.config.Attention.Dim))) }

// paged attends over the pools themselves.
func (m *Model) paged(i int, l *launch, in query) error {
	c, st := m.caches[i], &m.step
	a := kernel.DualArgs{Out: in.out.Slice(l.first, l.last), Q: in.q.Slice(l.first, l.last), Sinks: m.layers[i].attn.sinks,
		Heads: m.config.Attention.Heads, Scale: m.scale(),
		Window: kernel.Stream{Pool: c.window, Indices: st.window.Slice(l.first, l.last), Lens: st.windowLen.Slice(l.first, l.last)}}
	switch m.layers[i].ratio {
	case indexRatio:
		slots, err := m.buf.indices.Take(kernel.I32, l.last-l.first, m.config.Indexer.TopK)
		if err != nil {
			return err
		}
		err = m.dev.Locate(kernel.LocateArgs{Out: slots, Positions: st.selected.Slice(l.first, l.last), Table: st.table, TableRow: st.request.Slice(l.first, l.last),
			PageTokens: c.extra.PageTokens})
		if err != nil {
			return err
		}
		a.Extra = kernel.Stream{Pool: c.extra, Indices: slots, Lens: st.kept.Slice(l.first, l.last)}
	case heavyRatio:
		a.Extra = kernel.Stream{Pool: c.extra, Indices: st.heavy.Slice(l.first, l.last), Lens: st.heavyLen.Slice(l.first, l.last)}
	}
	return m.dev.DualAttend(a)
}

// flat gathers what the launch's rows see into one workspace, window entries first, and attends over it.
func (m *Model) flat(i int, l *launch, in query) error {
	c, st, n := m.caches[i], &m.step, l.last-l.first
	rows := func(t kernel.Tensor) kernel.Tensor { return t.Slice(l.first, l.last) }
	join := kernel.CombineArgs{Window: rows(st.window), WindowLens: rows(st.windowLen), WindowBase: rows(st.windowBase)}
	width := st.window.Cols
	var extra kernel.Tensor // slots of the compressed stream
	switch m.layers[i].ratio {
	case indexRatio:
		extra, join.Extra, join.ExtraLens, join.ExtraBase = l.groups, rows(st.selected), rows(st.kept), rows(st.groupBase)
	case heavyRatio:
		extra, join.Extra, join.ExtraLens, join.ExtraBase = l.heavy, rows(st.heavy), rows(st.heavyLen), rows(st.heavyBase)
	}
	if join.Extra.Given() {
		width += join.Extra.Cols
	}
	kv, err := m.gather(c, l.window, extra)
	if err != nil {
		return err
	}
	if join.Out, err = m.buf.combined.Take(kernel.I32, n, roundUp(width, kernel.CombineWidth)); err != nil {
		return err
	}
	if join.Lens, err = m.buf.lengths.Take(kernel.I32, n, 1); err != nil {
		return err
	}
	if err := m.dev.Combine(join); err != nil {
		return err
	}
	return m.dev.FlatAttend(kernel.FlatArgs{Out: rows(in.out), Q: rows(in.q), KV: kv, Indices: join.Out, Lens: join.Lens, Sinks: m.layers[i].attn.sinks,
		Heads: m.config.Attention.Heads, Scale: m.scale()})
}

// gather unpacks window entries and then compressed ones. 584-byte entries are exact in bf16.
func (m *Model) gather(c cache, window, extra kernel.Tensor) (kernel.Tensor, error) {
	kind, n := kernel.BF16, window.Rows+extra.Rows
	if c.window.Layout == layout.V4F32Row2048 {
		kind = kernel.F32
	}
	kv, err := m.buf.workspace.Take(kind, n, layout.V4Dim)
	if err != nil {
		return kv, err
	}
	if err := m.dev.Unpack(kernel.UnpackArgs{Out: kv.Slice(0, window.Rows), Slots: window, Pool: c.window}); err != nil {
		return kv, err
	}
	if extra.Rows == 0 {
		return kv, nil
	}
	return kv, m.dev.Unpack(kernel.UnpackArgs{Out: kv.Slice(window.Rows, n), Slots: extra, Pool: c.extra})
}
