package mla

import (
	"fmt"

	"sparrow/internal/attn"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// sparse selects keys, unless the layer uses an earlier selection, and computes attention over them in latent space.
// Launches run one after another, so they use the same memory for scores, gathered rows and queries.
func (p *Pass) sparse(layer int, l *launch, w *Weights, c Cache, x kernel.Tensor) {
	switch {
	case w.Index != nil:
		p.index.Select(p.list, &attn.Selection{
			Plan: l.segment, Space: &l.space, First: l.first, Last: l.last,
			Q: w.Index.Q, W: w.Index.Weights, Latent: p.qr, Hidden: x, Computed: p.joint, Angles: p.angles,
			Out: p.positions, Values: p.scores, Lens: p.lens, Cache: c.Index,
			Table: p.table, Request: p.request, Gather: l.indexSlots, Start: p.indexStart,
		})
		p.tap.Replace(p.list, p.all.positions)
	case !p.selected:
		if _, err := p.cfg.IndexerAt(l.segment, layer, false); err != nil {
			p.list.Fail(err)
		}
		p.list.Fail(fmt.Errorf("this layer needs an indexer, but the checkpoint has no indexer weights for it"))
		return
	}
	p.attend(l, w, c)
}

// attend runs one launch: it projects queries into latent space, converts selected positions to slots, computes
// attention and projects the outputs to value heads.
func (p *Pass) attend(l *launch, w *Weights, c Cache) {
	d := p.params.Dims
	p.list.Add(kernel.AbsorbArgs{Out: l.absorbed, Q: p.rotate(l), KVB: w.KVB, Dims: d})
	pool := p.source(l, c)
	p.locate(l, pool)
	p.list.Add(kernel.SparseArgs{Out: l.latent, Q: l.absorbed, Pool: pool, Indices: l.indices,
		Lens: p.kept.Slice(l.first, l.last), Heads: d.Heads, Scale: p.params.Scale,
		SplitKeys: l.segment.SplitKeys.Keys()})
	p.list.Add(kernel.ExpandArgs{Out: p.out.Slice(l.first, l.last), U: l.latent, KVB: w.KVB, Dims: d})
}

// locate converts a launch's selected positions to slots of the pool that it reads.
func (p *Pass) locate(l *launch, pool kernel.Pool) {
	args := kernel.LocateArgs{Out: l.indices, Positions: p.positions.Slice(l.first, l.last),
		PageTokens: pool.PageTokens}
	switch l.segment.Transform {
	case plan.TransformPaged:
		args.Table, args.TableRow = p.table, p.request.Slice(l.first, l.last)
		if l.table.Given() {
			args.Table = l.table
		}
	case plan.TransformRagged:
		args.Offset = p.start.Slice(l.first, l.last)
	default:
		p.list.Fail(fmt.Errorf("sparse attention needs a transform, but the plan has %v", l.segment.Transform))
	}
	p.list.Add(args)
}

// source returns the pool that a launch reads: the cache itself, its converted pages, or its gathered rows.
func (p *Pass) source(l *launch, c Cache) kernel.Pool {
	out := l.workspace
	switch l.segment.Convert {
	case plan.ConvertRawToBlock:
		p.list.Add(kernel.ConvertArgs{Out: out, In: c.Main, Pages: l.pages})
		return out
	case plan.ConvertGatherBF16:
		rows := out.Mem
		rows.DType, rows.Rows, rows.Cols, rows.Stride = kernel.BF16, out.PageTokens, layout.RowDim, layout.RowDim
		p.list.Add(kernel.GatherArgs{Out: rows, Slots: l.gather, Pool: c.Main})
		return out
	}
	return c.Main
}
