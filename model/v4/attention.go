package v4

import (
	"fmt"

	"sparrow/attn"
	"sparrow/kernel"
	"sparrow/plan"
)

// attend writes the attention output of layer i for x, normalised rows in step order, to out. Everything the step adds to the caches is
// stored before any row attends: a query that closes a group sees the new entry.
func (m *Model) attend(i int, out, x kernel.Tensor) error {
	a, c := &m.layers[i].attn, m.caches[i]
	angles := m.step.farAngles
	if m.layers[i].ratio == 0 {
		angles = m.step.mainAngles
	}
	in, err := m.project(a, projection{window: c.window, x: x, angles: angles, slots: m.step.slots, scores: m.scores()})
	if err != nil {
		return err
	}
	if err := m.compress(i, c, in); err != nil {
		return err
	}
	if in.out, err = m.buf.out.Take(m.dev.Activation(), x.Rows, m.config.Attention.Heads*m.config.Attention.Dim); err != nil {
		return err
	}
	for j := range m.step.segments {
		s := &m.step.segments[j]
		if err := m.runSegment(i, s, in); err != nil {
			return fmt.Errorf("segment %v: %w", s.plan.Row, err)
		}
	}
	return m.output(a, out, in.out, angles)
}

func (m *Model) rotate(x, angles kernel.Tensor, inverse bool) error {
	a := m.config.Attention
	return m.dev.Rotate(kernel.RotateArgs{X: x, Angles: angles, Heads: a.Heads, HeadDim: a.Dim, Offset: a.Dim - a.Rope, Pairing: kernel.Interleaved, Inverse: inverse})
}

// compress closes groups: it stores the entries, and for the indexer the keys, of every group that ends in this step, and keeps raw rows for
// those that do not.
func (m *Model) compress(i int, c cache, in query) error {
	a := &m.layers[i].attn
	if a.compress == nil {
		return nil
	}
	e, r := &m.step.closing4, m.states.rings[i]
	if a.compress.ratio == heavyRatio {
		e = &m.step.closing128
	}
	entries, err := m.closeGroups(a.compress, e, r.main, c.tails.main, in.main)
	if err != nil {
		return fmt.Errorf("compressor: %w", err)
	}
	if e.n > 0 {
		err = m.dev.StoreEntries(kernel.EntryStoreArgs{Rows: entries, Norm: a.compress.norm, Eps: m.config.RMSEps, Angles: e.angles, Slots: e.slots, Pool: c.extra})
		if err != nil {
			return err
		}
	}
	if a.index == nil {
		return nil
	}
	keys, err := m.closeGroups(&a.index.compress, e, r.index, c.tails.index, in.key)
	if err != nil {
		return fmt.Errorf("indexer's compressor: %w", err)
	}
	if e.n == 0 {
		return nil
	}
	return m.dev.StoreKeys(kernel.KeyStoreArgs{Keys: keys, Norm: a.index.compress.norm, Eps: m.config.RMSEps, Angles: e.angles, Hadamard: attn.Hadamard(c.index.Layout),
		Slots: e.slots, Pool: c.index})
}

// closeGroups computes entries from the step's rows and the ring, and then keeps the step's rows in the ring, and those that end a page also with
// its window page.
func (m *Model) closeGroups(c *compressor, e *entryTensors, ring, tails kernel.Tensor, raw rawEntries) (kernel.Tensor, error) {
	var out kernel.Tensor
	var err error
	if e.n > 0 {
		if out, err = m.buf.entry.Take(m.dev.Activation(), e.n, c.dim); err != nil {
			return out, err
		}
		err = m.dev.Compress(kernel.CompressArgs{Out: out, Values: raw.values, Gates: raw.gates, State: ring, APE: c.ape, Sources: e.sources, Ratio: c.ratio, Overlap: overlapped(c.ratio)})
		if err != nil {
			return out, err
		}
	}
	if err := m.keepRows(ring, raw, e.keep); err != nil || e.tail.Rows == 0 {
		return out, err
	}
	return out, m.keepRows(tails, raw, e.tail)
}

// keepRows puts raw rows, values before gates, in their places.
func (m *Model) keepRows(to kernel.Tensor, raw rawEntries, places kernel.Tensor) error {
	w := raw.values.Cols
	if err := m.dev.Put(kernel.PutArgs{Out: to.Columns(0, w), X: raw.values, Rows: places}); err != nil {
		return err
	}
	return m.dev.Put(kernel.PutArgs{Out: to.Columns(w, 2*w), X: raw.gates, Rows: places})
}

// output turns the heads back, because values carry the rotation of keys, and projects them group by group.
func (m *Model) output(a *attention, out, o, angles kernel.Tensor) error {
	cfg := m.config.Attention
	if err := m.rotate(o, angles, true); err != nil {
		return err
	}
	z, err := m.buf.z.Take(m.dev.Activation(), o.Rows, cfg.Groups*cfg.OLora)
	if err != nil {
		return err
	}
	in := o.Cols / cfg.Groups
	for g, w := range a.oa {
		err := m.dev.Multiply(kernel.MultiplyArgs{Out: z.Columns(g*cfg.OLora, (g+1)*cfg.OLora), X: o.Columns(g*in, (g+1)*in), W: w})
		if err != nil {
			return err
		}
	}
	return m.dev.Multiply(kernel.MultiplyArgs{Out: out, X: z, W: a.ob})
}

// runSegment selects and attends, launch after launch, so that scores and workspaces of only one of them take memory.
func (m *Model) runSegment(i int, s *segment, in query) error {
	if want := m.caches[i].window.Layout.String(); s.plan.Layout.String() != want {
		return &plan.Error{Code: plan.E27, Asked: fmt.Sprintf("a plan for %v entries over a cache of %s entries", s.plan.Layout, want),
			Supported: "a cache in the layout the configuration resolved to"}
	}
	index := m.layers[i].attn.index
	for j := range s.launches {
		l := &s.launches[j]
		if index != nil {
			if err := m.choose(s, l, index, m.caches[i], in); err != nil {
				return err
			}
		}
		var err error
		switch s.plan.Form {
		case plan.FormV4Paged:
			err = m.paged(i, l, in)
		case plan.FormV4SparsePrefill:
			err = m.flat(i, l, in)
		default:
			err = fmt.Errorf("form %v is not one this model runs", s.plan.Form)
		}
		if err != nil {
			return err
		}
	}
	if index != nil && m.observe != nil {
		first := s.plan.FirstRow
		return m.observe.Selected(i, first, m.step.selected.Slice(first, first+s.plan.Rows))
	}
	return nil
}
