package attn

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// sparseInput is what the sparse form reads and writes, all rows of the step.
type sparseInput struct {
	q   kernel.Tensor // [T, heads*(nope+rope)], rotated
	qr  kernel.Tensor // [T, q_lora]
	x   kernel.Tensor // [T, hidden]
	out kernel.Tensor // [T, heads*v]
}

// sparse selects keys, unless the layer shares a selection, and attends to them in latent space.
func (a *Attention) sparse(layer int, s *segment, w *Weights, c Cache, in sparseInput) error {
	first, last := s.first, s.first+s.plan.Rows
	if w.Index != nil {
		if err := a.choose(s, w.Index, c, in); err != nil {
			return err
		}
		s.chosen = true
		if a.Observe != nil {
			if err := a.Observe.Selected(layer, first, a.step.positions.Slice(first, last)); err != nil {
				return err
			}
		}
	}
	if !s.chosen {
		return plan.ErrCarryMissing(layer, layer-1)
	}
	d, act, n := a.params.Dims, a.dev.Activation(), last-first
	absorbed, err := a.buf.absorbed.Take(act, n, d.Heads*d.Row())
	if err != nil {
		return err
	}
	latent, err := a.buf.latent.Take(act, n, d.Heads*d.Latent)
	if err != nil {
		return err
	}
	if err := a.dev.Absorb(kernel.AbsorbArgs{Out: absorbed, Q: in.q.Slice(first, last), KVB: w.KVB, Dims: d}); err != nil {
		return err
	}
	for i := range s.launches {
		if err := a.attend(s, &s.launches[i], c, absorbed, latent); err != nil {
			return err
		}
	}
	return a.dev.Expand(kernel.ExpandArgs{Out: in.out.Slice(first, last), U: latent, KVB: w.KVB, Dims: d})
}

// attend runs one launch: places for the selected positions, then attention over them.
func (a *Attention) attend(s *segment, l *launch, c Cache, absorbed, latent kernel.Tensor) error {
	indices, err := a.buf.indices.Take(kernel.I32, l.last-l.first, a.params.TopK)
	if err != nil {
		return err
	}
	pool, err := a.source(s, l, c)
	if err != nil {
		return err
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
		return fmt.Errorf("sparse attention needs a transform, the plan says %v", s.plan.Transform)
	}
	if err := a.dev.Locate(locate); err != nil {
		return err
	}
	return a.dev.SparseAttend(kernel.SparseArgs{
		Out:     latent.Slice(l.first-s.first, l.last-s.first),
		Q:       absorbed.Slice(l.first-s.first, l.last-s.first),
		Pool:    pool,
		Indices: indices,
		Lens:    a.step.kept.Slice(l.first, l.last),
		Heads:   a.params.Dims.Heads,
		Scale:   a.params.Scale,
	})
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
