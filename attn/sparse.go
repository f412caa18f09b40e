package attn

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// sparse selects keys, unless the layer shares a selection, and attends to them in latent space. A launch is done before the next begins, so
// that scores, gathered rows and queries of only one of them take memory.
func (a *Attention) sparse(layer int, s *segment, w *Weights, c Cache, in projected) error {
	if w.Index == nil && !s.chosen {
		if _, err := a.step.config.IndexerAt(s.plan, layer, false); err != nil {
			return err
		}
		return fmt.Errorf("the plan lets the layer compute its own selection, its weights hold no indexer")
	}
	for i := range s.launches {
		l := &s.launches[i]
		if w.Index != nil {
			if err := a.choose(s, l, w.Index, c, in); err != nil {
				return err
			}
		}
		if err := a.attend(s, l, w, c, in); err != nil {
			return err
		}
	}
	if w.Index == nil {
		return nil
	}
	s.chosen = true
	if a.Observe != nil {
		return a.Observe.Selected(layer, s.first, a.step.positions.Slice(s.first, s.first+s.plan.Rows))
	}
	return nil
}

// attend runs one launch: queries into latent space, places for the selected positions, attention over them, outputs back out.
func (a *Attention) attend(s *segment, l *launch, w *Weights, c Cache, in projected) error {
	d, act, n := a.params.Dims, a.dev.Activation(), l.last-l.first
	absorbed, err := a.buf.absorbed.Take(act, n, d.Heads*d.Row())
	if err != nil {
		return err
	}
	latent, err := a.buf.latent.Take(act, n, d.Heads*d.Latent)
	if err != nil {
		return err
	}
	if err := a.dev.Absorb(kernel.AbsorbArgs{Out: absorbed, Q: in.q.Slice(l.first, l.last), KVB: w.KVB, Dims: d}); err != nil {
		return err
	}
	indices, pool, err := a.places(s, l, c)
	if err != nil {
		return err
	}
	err = a.dev.SparseAttend(kernel.SparseArgs{Out: latent, Q: absorbed, Pool: pool, Indices: indices, Lens: a.step.kept.Slice(l.first, l.last),
		Heads: d.Heads, Scale: a.params.Scale})
	if err != nil {
		return err
	}
	return a.dev.Expand(kernel.ExpandArgs{Out: in.out.Slice(l.first, l.last), U: latent, KVB: w.KVB, Dims: d})
}

// places turns a launch's selected positions into slots of the pool it reads.
func (a *Attention) places(s *segment, l *launch, c Cache) (indices kernel.Tensor, pool kernel.Pool, err error) {
	if indices, err = a.buf.indices.Take(kernel.I32, l.last-l.first, a.params.TopK); err != nil {
		return
	}
	if pool, err = a.source(s, l, c); err != nil {
		return
	}
	locate := kernel.LocateArgs{Out: indices, Positions: a.step.positions.Slice(l.first, l.last), PageTokens: pool.PageTokens}
	switch s.plan.Transform {
	case plan.TransformPaged:
		locate.Table, locate.TableRow = a.step.table, a.step.request.Slice(l.first, l.last)
		if l.table.Given() {
			locate.Table = l.table
		}
	case plan.TransformRagged:
		locate.Offset = a.step.start.Slice(l.first, l.last)
	default:
		err = fmt.Errorf("sparse attention needs a transform, the plan says %v", s.plan.Transform)
		return
	}
	err = a.dev.Locate(locate)
	return
}

// source is the pool a launch reads: the cache itself, its referenced pages converted, or its rows gathered.
func (a *Attention) source(s *segment, l *launch, c Cache) (kernel.Pool, error) {
	switch s.plan.Convert {
	case plan.ConvertNone:
		return c.Main, nil
	case plan.ConvertRawToBlock:
		out, err := a.pages(layout.FP8Row656, l.pages.Rows, c.Main.PageTokens)
		if err != nil {
			return kernel.Pool{}, err
		}
		return out, a.dev.ConvertPages(kernel.ConvertArgs{Out: out, In: c.Main, Pages: l.pages})
	case plan.ConvertGatherBF16:
		out, err := a.pages(layout.BF16Row1152, 1, l.keys)
		if err != nil {
			return kernel.Pool{}, err
		}
		rows := kernel.Tensor{Buf: out.Mem.Buf, DType: kernel.BF16, Rows: l.keys, Cols: layout.RowDim, Stride: layout.RowDim}
		return out, a.dev.GatherRows(kernel.GatherArgs{Out: rows, Slots: l.flat, Pool: c.Main})
	}
	return kernel.Pool{}, fmt.Errorf("conversion %v is not one the sparse form knows", s.plan.Convert)
}

// pages takes workspace memory for pages of a main layout.
func (a *Attention) pages(k layout.Kind, pages, tokens int) (kernel.Pool, error) {
	l, err := layout.MainOf(k)
	if err != nil {
		return kernel.Pool{}, err
	}
	t, err := a.buf.workspace.Take(kernel.U8, pages, l.PageBytes(tokens))
	return kernel.Pool{Mem: t, Layout: k, PageTokens: tokens}, err
}
