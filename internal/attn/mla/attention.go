// Package mla computes the attention of DeepSeek-V3.2 and GLM-5: rows attend to latent rows that an indexer selects, or
// to all expanded keys in short prompts. Models without an indexer, such as DeepSeek-V3, attend to all latent rows.
package mla

import (
	"fmt"

	"sparrow/internal/attn"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// Params are the properties of a model that attention uses.
type Params struct {
	Dims         kernel.LatentDims
	QLora        int // 0 if one matrix projects queries directly
	IndexHeads   int // 0 if the model has no indexer
	TopK         int // number of keys that a query may attend to; 0 without an indexer
	Scale        float32
	LatentEps    float32
	IndexPairing kernel.Pairing
	InvFreq      []float32
	CosScale     float32
}

// indexEps is the epsilon of the indexer's LayerNorm, which is equal in all families.
const indexEps = 1e-6

// Weights are the matrices of one layer. If one matrix projects queries directly, that matrix is QB, and QA and QNorm
// are nil.
type Weights struct {
	QA, QB, KVA, KVB, O kernel.Matrix
	QNorm, KVNorm       kernel.Tensor
	Index               *IndexWeights // nil if the layer uses an earlier layer's selection, or the model has no indexer
}

// IndexWeights are the matrices of one layer's indexer.
type IndexWeights struct {
	Q, K, Weights kernel.Matrix
	KNorm, KBias  kernel.Tensor
}

// Cache is the paged memory of one layer. Index is not given for layers that use the selection of an earlier layer.
type Cache struct{ Main, Index kernel.Pool }

// Attention is the attention of one model on one device. One goroutine uses it at a time.
type Attention struct {
	list   *kernel.Builder
	act    kernel.DType
	params Params
	freq   kernel.Tensor // f32 [1, rope/2]
	index  attn.Indexer
	joins  bool // the device can multiply by joined matrices (kernel.Joiner)
}

// New prepares attention for a model whose passes are made by the builder.
func New(dev kernel.Device, list *kernel.Builder, p Params) (*Attention, error) {
	freq, err := kernel.New(dev, kernel.F32, 1, len(p.InvFreq))
	if err != nil {
		return nil, err
	}
	if err := kernel.WriteF32(dev, freq, p.InvFreq); err != nil {
		return nil, err
	}
	index := attn.Indexer{Heads: p.IndexHeads, TopK: p.TopK, Pairing: p.IndexPairing}
	_, joins := dev.(kernel.Joiner)
	return &Attention{list: list, act: dev.Activation(), params: p, freq: freq, index: index, joins: joins}, nil
}

// Pass is the attention of every layer in one forward pass, with its tensors in the arena. T is the number of rows for
// which the rank computes attention: all rows of the pass, unless ranks divide attention by requests.
type Pass struct {
	*Attention
	cfg  *plan.Config
	plan *plan.Plan
	own  plan.Share
	inputArrays[kernel.Tensor]

	angles    kernel.Tensor // f32 [T, rope]
	positions kernel.Tensor // i32 [T, K]: the latest selection
	scores    kernel.Tensor // f32 [T, K]: scores of the selection, if they are recorded
	all       selection     // selection for all rows of the pass; positions and scores are the rank's part
	tap       attn.Tap      // tap of the layer in progress
	first     kernel.Tensor // [T, q_lora+128+latent+rope]: qr, key and kv, if matrices are joined
	qr        kernel.Tensor // [T, q_lora], normalised
	query     kernel.Tensor // [T, heads*(nope+rope)], rotated
	kv        kernel.Tensor // [T, latent+rope], before normalisation and rotation
	key       kernel.Tensor // [T, 128], before normalisation and rotation
	joint     attn.Queries  // raw indexer queries of all rows; not given if they are computed in chunks
	out       kernel.Tensor // [T, heads*v]
	launches  []launch

	// Kept is the arena's mark after the tensors that later layers read: rotation angles and the selection. Other parts
	// of a layer may use the memory after the mark.
	Kept int64

	selected bool // positions hold a selection of this pass
	fill     filler
}

// selection holds positions, i32 [rows of the pass, K], and their scores, f32, if they are recorded.
type selection struct{ positions, scores kernel.Tensor }

// launch is one launch of a segment: the rows [first, last) of the rank, and the memory of the launch. Launches run one
// after another and use the same memory.
type launch struct {
	segment     *plan.Segment
	first, last int
	gather      kernel.Tensor // i32 [keys, 1]: slots of the rows that the launch gathers
	pages       kernel.Tensor // i32 [pages, 1]: cache pages that the launch converts
	table       kernel.Tensor // i32 [requests, pages]: page table over the converted pages
	indexSlots  kernel.Tensor // i32 [keys, 1]: slots of the indexer keys that the launch gathers

	space            attn.IndexSpace
	rows, up         kernel.Tensor // dense: gathered rows, expanded keys and values
	absorbed, latent kernel.Tensor // queries and outputs in latent space
	indices          kernel.Tensor // i32 [n, K]: slots of the selected positions
	workspace        kernel.Pool   // converted pages or gathered rows
}

// Layouts are the byte layouts of a cache.
type Layouts struct{ Main, Index layout.Kind }

// Arrange takes the tensors of a pass from an arena.
func (a *Attention) Arrange(p *plan.Plan, cfg *plan.Config, in attn.Inputs, mem *kernel.Arena, l Layouts) (*Pass,
	error) {
	own, d := p.Share(a.list.Ranks().Rank), a.params.Dims
	rows := func(t kernel.Tensor) kernel.Tensor { return attn.OwnRows(t, own.FirstRow, own.Rows) }
	t := own.Rows
	out := &Pass{Attention: a, cfg: cfg, plan: p, own: own, inputArrays: inputArraysOf(in.Array),
		angles: mem.Take(kernel.F32, t, 2*len(a.params.InvFreq))}
	for _, x := range []*kernel.Tensor{&out.request, &out.position, &out.slots, &out.lens, &out.kept, &out.start,
		&out.indexStart} {
		*x = rows(*x)
	}
	if p.Selects() {
		out.all.positions = mem.Take(kernel.I32, p.Rows, a.params.TopK)
		out.positions = rows(out.all.positions)
	}
	if p.Record.Scores {
		out.all.scores = mem.Take(kernel.F32, p.Rows, a.params.TopK)
		out.scores = rows(out.all.scores)
	}
	out.Kept = mem.Mark()
	out.takeProducts(mem)
	out.out = mem.Take(a.act, t, d.Heads*d.V)
	mark := mem.Mark()
	for i := range p.Segments {
		s := &p.Segments[i]
		if s.Form != plan.FormEmpty && s.Layout.String() != l.Main.String() {
			return nil, plan.ErrLayout(s.Layout.String(), l.Main.String())
		}
		if p.Shares != nil && s.Rank != a.list.Ranks().Rank {
			continue
		}
		for j := range s.Launches {
			mem.Reset(mark)
			x, err := out.launch(s, &s.Launches[j], mem, l)
			if err != nil {
				return nil, err
			}
			if x.first < x.last { // no kernel runs if all rows are padding
				out.launches = append(out.launches, x)
			}
		}
	}
	mem.Reset(mark)
	return out, nil
}

// takeProducts allocates the memory for the matrix products of all rows.
func (p *Pass) takeProducts(mem *kernel.Arena) {
	t, d, query := p.own.Rows, p.params.Dims, p.params.Dims.Heads*p.params.Dims.QK()
	if !p.joins {
		p.qr, p.query, p.kv = mem.Take(p.act, t, p.params.QLora), mem.Take(p.act, t, query), mem.Take(p.act, t, d.Row())
		p.key = mem.Take(p.act, t, p.params.keyDim())
		if p.plan.JointQueries {
			p.joint = p.index.TakeQueries(mem, p.act, t)
		}
		return
	}
	p.first = mem.Take(p.act, t, p.params.QLora+p.params.keyDim()+d.Row())
	index := p.params.IndexHeads * layout.IndexDim
	if !p.plan.JointQueries {
		index = 0
	}
	both := mem.Take(p.act, t, query+index)
	if p.query = both.Columns(0, query); index > 0 {
		p.joint = attn.Queries{Q: both.Columns(query, query+index),
			Weights: mem.Take(kernel.F32, t, p.params.IndexHeads)}
	}
}

// keyDim returns the width of an indexer key, or 0 without an indexer.
func (p *Params) keyDim() int {
	if p.IndexHeads == 0 {
		return 0
	}
	return layout.IndexDim
}

// launch takes the tensors of one launch from the arena. Selection and attention use the same memory, because selection
// ends before attention begins.
func (p *Pass) launch(s *plan.Segment, l *plan.Launch, mem *kernel.Arena, kinds Layouts) (x launch, err error) {
	d := p.params.Dims
	x.segment = s
	x.first, x.last = attn.LaunchRows(s, l)
	x.first, x.last = x.first-p.own.FirstRow, x.last-p.own.FirstRow
	n := x.last - x.first
	x.gather = p.gather.Slice(l.Gather.First, l.Gather.End())
	x.pages = p.pages.Slice(l.Pages.First, l.Pages.End())
	x.indexSlots = p.indexSlots.Slice(l.Index.First, l.Index.End())
	if l.Tables.Count > 0 {
		x.table = p.tables.Slice(l.Tables.First, l.Tables.End())
	}
	switch s.Form {
	case plan.FormDenseMHA:
		x.rows, x.up = mem.Take(p.act, l.Gather.Count, d.Row()), mem.Take(p.act, l.Gather.Count, d.KVB())
		return x, nil
	case plan.FormEmpty:
		x.last = x.first
		return x, nil
	case plan.FormDenseMLA:
		x.absorbed, x.latent = mem.Take(p.act, n, d.Heads*d.Row()), mem.Take(p.act, n, d.Heads*d.Latent)
		return x, nil
	case plan.FormSparseMLA:
	default:
		return x, fmt.Errorf("mla: this attention does not support form %v", s.Form)
	}
	mark := mem.Mark()
	if x.space, err = p.index.Arrange(mem, p.plan, s, l, kinds.Index, p.act); err != nil {
		return x, err
	}
	mem.Reset(mark)
	x.absorbed, x.latent = mem.Take(p.act, n, d.Heads*d.Row()), mem.Take(p.act, n, d.Heads*d.Latent)
	x.indices = mem.Take(kernel.I32, n, p.params.TopK)
	switch s.Convert {
	case plan.ConvertNone:
	case plan.ConvertRawToBlock:
		x.workspace, err = workspace(mem, layout.FP8Row656, l.Pages.Count, p.cfg.Page)
	case plan.ConvertGatherBF16:
		x.workspace, err = workspace(mem, layout.BF16Row1152, 1, l.Gather.Count)
	default:
		err = fmt.Errorf("mla: sparse attention does not support conversion %v", s.Convert)
	}
	return x, err
}

// workspace allocates a pool of the given number of pages of a main layout.
func workspace(mem *kernel.Arena, k layout.Kind, pages, tokens int) (kernel.Pool, error) {
	l, err := layout.MainOf(k)
	if err != nil {
		return kernel.Pool{}, err
	}
	return kernel.Pool{Mem: mem.Take(kernel.U8, pages, l.PageBytes(tokens)), Layout: k, PageTokens: tokens}, nil
}

// Begin adds the operation whose result every layer reads: the rotation angles of each row.
func (p *Pass) Begin() {
	p.selected = false
	if p.own.Rows == 0 {
		return
	}
	p.list.Add(kernel.AngleArgs{Out: p.angles, Positions: p.position, InvFreq: p.freq, Scale: p.params.CosScale})
}

// Layer adds the attention output of one layer for x (normalised rows of the pass, in plan order) to h. With several
// ranks, h is then complete on all ranks. tap records or replaces the layer's selection.
func (p *Pass) Layer(layer int, w *Weights, c Cache, h, x kernel.Tensor, tap attn.Tap) {
	p.list.At("attention", layer)
	if w.Index != nil && !c.Index.Mem.Given() {
		p.list.Fail(fmt.Errorf("the layer computes a selection but has no index cache"))
		return
	}
	p.tap = tap
	if p.own.Rows > 0 {
		p.attendOwn(layer, w, c, p.rows(h), p.rows(x))
	}
	if w.Index != nil {
		p.selected = true
		p.tap.Record(p.list, p.all.positions, p.all.scores, p.plan.RowBounds)
	}
	attn.Join(p.list, h, p.plan.RowBounds)
}

// rows returns the rank's rows of a tensor that has all rows of the pass.
func (p *Pass) rows(t kernel.Tensor) kernel.Tensor {
	return attn.OwnRows(t, p.own.FirstRow, p.own.Rows)
}

// attendOwn adds the attention output of the rank's rows x to h. If ranks divide attention by heads, the first rank
// adds its part to h and the other ranks overwrite h with their parts, for the all-reduce that follows.
func (p *Pass) attendOwn(layer int, w *Weights, c Cache, h, x kernel.Tensor) {
	p.project(w, x)
	p.store(w, c)
	for i := range p.launches {
		switch l := &p.launches[i]; l.segment.Form {
		case plan.FormDenseMHA:
			p.dense(l, w, c)
		case plan.FormDenseMLA:
			p.whole(l, w, c)
		default:
			p.sparse(layer, l, w, c, x)
		}
	}
	p.list.Add(kernel.MultiplyArgs{Out: h, X: p.out, W: w.O, Accumulate: p.plan.Shares != nil || p.list.First()})
}

// Store writes the latent rows and indexer keys of a layer for x (normalised rows, in plan order) without computing
// attention, for rows whose outputs are not used.
func (p *Pass) Store(layer int, w *Weights, c Cache, x kernel.Tensor) {
	if p.own.Rows == 0 {
		return
	}
	p.list.At("keys", layer)
	p.view(w)
	p.list.Add(kernel.ProjectArgs{X: p.rows(x), To: p.keys(nil, w)})
	p.store(w, c)
}
