// Package hybrid computes the attention of GLM-5.3-Flash. Most layers have linear attention (KDA): each sequence has a
// state, which every token updates, and a convolution that also reads the three previous tokens. The other layers
// attend to latent rows without rotary embedding; their indexer has one key for every four tokens (a pool) and selects
// pools.
//
// No operation of the package depends on absolute positions.
package hybrid

import (
	"fmt"

	"sparrow/internal/attn"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// Pool is the number of tokens of an index key.
const Pool = 4

// Window is the number of positions, up to that of the next token, for which a sequence needs window pages: a page that
// ends just before the next token has the snapshot of the states.
const Window = 2

// indexEps is the epsilon of the indexer's LayerNorm, which is equal in all families.
const indexEps = 1e-6

// Params are the properties of a model that attention uses.
type Params struct {
	Dims        kernel.LatentDims // without a rotated part
	QLora       int
	IndexHeads  int
	TopK        int // number of pools that a query may attend to
	Scale       float32
	Eps         float32
	LinearHeads int
	Bound       float32 // bound of the logarithm of a channel's decay
}

// linearWidth returns the size of all heads of linear attention.
func (p *Params) linearWidth() int { return p.LinearHeads * kernel.DeltaDim }

// Weights are the matrices of a layer that selects keys with an indexer.
type Weights struct {
	QA, QB, KVA, KVB, O kernel.Matrix
	QNorm, KVNorm       kernel.Tensor
	Index               IndexWeights
}

// IndexWeights are the matrices of one layer's indexer.
type IndexWeights struct {
	Q, K, Weights kernel.Matrix
	Gate          kernel.Matrix // [128, hidden]: gates of the keys of a pool, for each channel
	KNorm, KBias  kernel.Tensor
	APE           kernel.Tensor // f32 [4, 128]: added to the gates by position in the pool
}

// LinearWeights are the matrices of a layer of linear attention.
type LinearWeights struct {
	Q, K, V, Beta, O kernel.Matrix
	FA, FB           kernel.Matrix // decay of channels, as a low-rank product: [128, hidden] and [heads*128, 128]
	GA, GB           kernel.Matrix // output gate, as a low-rank product: [128, hidden] and [heads*128, 128]
	Conv             kernel.Tensor // f32 [3*heads*128, 4]: channels of q, k and v
	ALog, Bias, Norm kernel.Tensor // f32 [1, heads], [1, heads*128], [1, 128]
}

// Join calls kernel.Joiner with the index matrices that multiply rows of the layer into adjacent columns.
func (w *IndexWeights) Join(j kernel.Joiner) error { return j.Join(w.K, w.Gate) }

// Join calls kernel.Joiner with the matrices that multiply rows of the layer into adjacent columns. The results of Beta
// are float32, those of the others are activations, so Beta is not joined.
func (w *LinearWeights) Join(j kernel.Joiner) error { return j.Join(w.Q, w.K, w.V, w.FA, w.GA) }

// Cache is the paged memory of one layer: latent rows and keys of pools, or snapshots of the states of a linear layer.
type Cache struct {
	Main, Index kernel.Pool
	Kept        LinearState // one state for each window page
}

// Attention is the attention of one model on one device. One goroutine uses it at a time.
type Attention struct {
	list   *kernel.Builder
	act    kernel.DType
	params Params
	index  attn.Indexer
	States *States
}

// New prepares attention for a model whose passes are made by the builder. linear has an element for each layer,
// including the drafting layer: true for linear attention.
func New(dev kernel.Device, list *kernel.Builder, p Params, linear []bool) *Attention {
	return &Attention{list: list, act: dev.Activation(), params: p,
		index:  attn.Indexer{Heads: p.IndexHeads, TopK: p.TopK, Pairing: kernel.Interleaved, Scales: num.ScaleF32},
		States: newStates(dev, linear, p.linearWidth())}
}

// Pass is the attention of every layer in one forward pass, with its tensors in the arena.
type Pass struct {
	*Attention
	plan *plan.Plan
	inputArrays[kernel.Tensor]

	selected kernel.Tensor // i32 [T, K]: the latest selection
	scores   kernel.Tensor // f32 [T, K]: scores of the selection, if they are recorded
	tap      attn.Tap      // tap of the layer in progress

	qr, query, kv kernel.Tensor // [T, q_lora], [T, heads*nope], [T, 512]
	raw           kernel.Tensor // f32 [T, 256]: index keys, then their gates
	keys          kernel.Tensor // [n, 128]: keys of completed pools
	joint         attn.Queries
	out           kernel.Tensor // [T, heads*v]
	launches      []launch
	linear        linearSpace

	// Kept is the arena's mark after the tensors that later layers read. Other parts of a layer may use the memory
	// after the mark.
	Kept int64

	fill filler
}

// linearSpace is the memory of a layer of linear attention.
type linearSpace struct {
	z, c   kernel.Tensor // [T, 3*width]: q, k and v before and after the convolution
	fa, ga kernel.Tensor // [T, 128]; z, fa and ga are columns of one tensor, in this order
	f      kernel.Tensor // f32 [T, width]
	g      kernel.Tensor // [T, width]
	beta   kernel.Tensor // f32 [T, heads]
	o      kernel.Tensor // [T, width]
}

// launch is one launch of a segment: the rows [first, last), and the memory of the launch. Launches run one after
// another and use the same memory.
type launch struct {
	segment          *plan.Segment
	first, last      int
	indexSlots       kernel.Tensor // i32 [keys, 1]: slots of the pooled keys that the launch gathers
	space            attn.IndexSpace
	absorbed, latent kernel.Tensor // queries and outputs in latent space
	indices, lens    kernel.Tensor // i32 [n, tokens] and [n, 1]: slots of tokens to attend to, and their number
	gather           kernel.Tensor // i32 [keys, 1]: slots of the rows that the launch gathers
	workspace        kernel.Pool   // gathered rows: one page, in bf16; not given if rows are read in place
}

// Layouts are the byte layouts of a cache.
type Layouts struct{ Main, Index layout.Kind }

// Arrange takes the tensors of a pass from an arena.
func (a *Attention) Arrange(p *plan.Plan, in attn.Inputs, mem *kernel.Arena, l Layouts) (*Pass, error) {
	s := &Pass{Attention: a, plan: p, inputArrays: inputArraysOf(in.Array)}
	t, d := p.Rows, a.params.Dims
	s.selected = mem.Take(kernel.I32, t, a.params.TopK)
	if p.Record.Scores {
		s.scores = mem.Take(kernel.F32, t, a.params.TopK)
	}
	s.Kept = mem.Mark()
	s.qr, s.query = mem.Take(a.act, t, a.params.QLora), mem.Take(a.act, t, d.Heads*d.QK())
	s.kv, s.raw = mem.Take(a.act, t, d.Row()), mem.Take(kernel.F32, t, 2*layout.IndexDim)
	s.keys = mem.Take(a.act, s.closeSlots.Rows, layout.IndexDim)
	if p.JointQueries {
		s.joint = a.index.TakeQueries(mem, a.act, t)
	}
	s.out = mem.Take(a.act, t, d.Heads*d.V)
	mark := mem.Mark()
	for i := range p.Segments {
		g := &p.Segments[i]
		if g.Form != plan.FormEmpty && g.Layout.String() != l.Main.String() {
			return nil, plan.ErrLayout(g.Layout.String(), l.Main.String())
		}
		for j := range g.Launches {
			mem.Reset(mark)
			x, err := s.arrangeLaunch(g, &g.Launches[j], mem, l)
			if err != nil {
				return nil, err
			}
			if x.first < x.last { // no kernel runs if all rows are padding
				s.launches = append(s.launches, x)
			}
		}
	}
	if p.Pass == plan.PassTarget {
		mem.Reset(s.Kept)
		s.linear.arrange(a, mem, t)
	}
	return s, nil
}

func (x *linearSpace) arrange(a *Attention, mem *kernel.Arena, rows int) {
	w := a.params.linearWidth()
	const d = kernel.DeltaDim
	first := mem.Take(a.act, rows, 3*w+2*d) // in the order of LinearWeights.Join
	x.z, x.fa, x.ga = first.Columns(0, 3*w), first.Columns(3*w, 3*w+d), first.Columns(3*w+d, 3*w+2*d)
	x.c = mem.Take(a.act, rows, 3*w)
	x.f, x.g = mem.Take(kernel.F32, rows, w), mem.Take(a.act, rows, w)
	x.beta, x.o = mem.Take(kernel.F32, rows, a.params.LinearHeads), mem.Take(a.act, rows, w)
}

// arrangeLaunch takes the tensors of one launch from the arena. Selection and attention use the same memory, because
// selection ends before attention begins.
func (s *Pass) arrangeLaunch(g *plan.Segment, l *plan.Launch, mem *kernel.Arena, kinds Layouts) (x launch, err error) {
	x.segment = g
	x.first, x.last = attn.LaunchRows(g, l)
	n, d := x.last-x.first, s.params.Dims
	switch g.Form {
	case plan.FormEmpty:
		x.last = x.first
		return x, nil
	case plan.FormSparseMLA:
	default:
		return x, fmt.Errorf("hybrid: this attention does not support form %v", g.Form)
	}
	x.indexSlots = s.groupSlots.Slice(l.Index.First, l.Index.End())
	mark := mem.Mark()
	if x.space, err = s.index.Arrange(mem, s.plan, g, l, kinds.Index, s.act); err != nil {
		return x, err
	}
	mem.Reset(mark)
	x.absorbed, x.latent = mem.Take(s.act, n, d.Heads*d.Row()), mem.Take(s.act, n, d.Heads*d.Latent)
	x.indices, x.lens = mem.Take(kernel.I32, n, s.params.TopK*Pool+Pool-1), mem.Take(kernel.I32, n, 1)
	switch g.Convert {
	case plan.ConvertNone:
	case plan.ConvertGatherBF16:
		keys := l.Gather.Count
		x.gather = s.gather.Slice(l.Gather.First, l.Gather.End())
		x.workspace = kernel.Pool{Mem: mem.Take(kernel.U8, 1, layout.NopeBF16{}.PageBytes(keys)),
			Layout: layout.BF16Row1024, PageTokens: keys}
	default:
		err = fmt.Errorf("hybrid: sparse attention does not support conversion %v", g.Convert)
	}
	return x, err
}

// Layer computes the attention of a layer with an indexer for x, normalised rows of the pass in plan order. The output
// is written to out or, if add is true, added to out. tap records or replaces the layer's selection.
func (s *Pass) Layer(layer int, w *Weights, c Cache, out, x kernel.Tensor, add bool, tap attn.Tap) {
	s.list.At("attention", layer)
	s.tap = tap
	s.project(w, x)
	s.store(layer, w, c)
	for i := range s.launches {
		s.sparse(&s.launches[i], w, c, x)
	}
	s.list.At("attention", layer)
	s.list.Add(kernel.MultiplyArgs{Out: out, X: s.out, W: w.O, Accumulate: add})
	s.tap.Record(s.list, s.selected, s.scores, nil)
}

// Store writes the latent rows and pooled keys of a layer for x without computing attention, for rows whose outputs are
// not used.
func (s *Pass) Store(layer int, w *Weights, c Cache, x kernel.Tensor) {
	s.list.At("keys", layer)
	s.list.Add(kernel.ProjectArgs{X: x, To: s.rowProducts(nil, w)})
	s.store(layer, w, c)
}

// rawKeys and rawGates are the two halves of a raw row.
func (s *Pass) rawKeys() kernel.Tensor  { return s.raw.Columns(0, layout.IndexDim) }
func (s *Pass) rawGates() kernel.Tensor { return s.raw.Columns(layout.IndexDim, 2*layout.IndexDim) }

// rowProducts appends the matrix products for index keys, their gates and latent rows.
func (s *Pass) rowProducts(to []kernel.Projection, w *Weights) []kernel.Projection {
	return append(to, kernel.Projection{Out: s.rawKeys(), W: w.Index.K},
		kernel.Projection{Out: s.rawGates(), W: w.Index.Gate}, kernel.Projection{Out: s.kv, W: w.KVA})
}

// project computes queries, latents, index keys and gates of x. Products of x are computed together.
func (s *Pass) project(w *Weights, x kernel.Tensor) {
	to := s.rowProducts([]kernel.Projection{{Out: s.qr, W: w.QA}}, w)
	if s.plan.JointQueries {
		to = append(to, kernel.Projection{Out: s.joint.Weights, W: w.Index.Weights})
	}
	s.list.Add(kernel.ProjectArgs{X: x, To: to})
	s.list.Add(kernel.NormArgs{Out: s.qr, X: s.qr, Weight: w.QNorm, Eps: s.params.Eps})
	to = []kernel.Projection{{Out: s.query, W: w.QB}}
	if s.plan.JointQueries {
		to = append(to, kernel.Projection{Out: s.joint.Q, W: w.Index.Q})
	}
	s.list.Add(kernel.ProjectArgs{X: s.qr, To: to})
}

// store writes the pass's latent rows and the keys of completed pools to the cache, and raw rows of incomplete pools to
// the rings.
func (s *Pass) store(layer int, w *Weights, c Cache) {
	s.list.Add(kernel.StoreArgs{KV: s.kv, Norm: w.KVNorm, Eps: s.params.Eps, Slots: s.slots, Pool: c.Main})
	x, keys := &w.Index, s.rawKeys()
	s.list.Add(kernel.LayerNormArgs{Out: keys, X: keys, Weight: x.KNorm, Bias: x.KBias, Eps: indexEps})
	ring := s.States.rings[layer]
	if s.keys.Rows > 0 {
		s.list.Add(kernel.CompressArgs{Out: s.keys, Values: keys, Gates: s.rawGates(), State: ring, APE: x.APE,
			Sources: s.closeSources, Ratio: Pool})
		s.list.Add(kernel.KeyStoreArgs{Keys: s.keys, Hadamard: attn.Hadamard(c.Index.Layout), Slots: s.closeSlots,
			Pool: c.Index})
	}
	s.list.Add(kernel.PutArgs{Out: ring, X: s.raw, Rows: s.keep})
}

// sparse selects pools and computes attention in latent space over the tokens of these pools, and over the tokens after
// the last complete pool: over rows of the cache, or over rows that the launch gathers.
func (s *Pass) sparse(l *launch, w *Weights, c Cache, x kernel.Tensor) {
	rows := func(t kernel.Tensor) kernel.Tensor { return t.Slice(l.first, l.last) }
	s.index.Select(s.list, &attn.Selection{
		Plan: l.segment, Space: &l.space, First: l.first, Last: l.last,
		Q: w.Index.Q, W: w.Index.Weights, Latent: s.qr, Hidden: x, Computed: s.joint,
		Out: s.selected, Values: s.scores, Lens: s.groups, Cache: c.Index,
		Table: s.table, Request: s.request, Gather: l.indexSlots, Start: s.groupStart,
	})
	s.tap.Replace(s.list, s.selected)
	d := s.params.Dims
	s.list.Add(kernel.AbsorbArgs{Out: l.absorbed, Q: rows(s.query), KVB: w.KVB, Dims: d})
	spread := kernel.SpreadArgs{Out: l.indices, Lens: l.lens, Pools: rows(s.selected), Seen: rows(s.lens), Pool: Pool}
	pool := c.Main
	if l.workspace.Mem.Given() {
		pool, spread.Offset = l.workspace, rows(s.start)
		s.list.Add(kernel.GatherArgs{Out: rowsOf(pool), Slots: l.gather, Pool: c.Main})
	} else {
		spread.Table, spread.TableRow, spread.PageTokens = s.table, rows(s.request), pool.PageTokens
	}
	s.list.Add(spread)
	s.list.Add(kernel.SparseArgs{Out: l.latent, Q: l.absorbed, Pool: pool, Indices: l.indices, Lens: l.lens,
		Heads: d.Heads, Scale: s.params.Scale, SplitKeys: l.segment.SplitKeys.Keys()})
	s.list.Add(kernel.ExpandArgs{Out: rows(s.out), U: l.latent, KVB: w.KVB, Dims: d})
}

// rowsOf returns the rows of a workspace: bf16 [keys, 512].
func rowsOf(p kernel.Pool) kernel.Tensor {
	t := p.Mem
	t.DType, t.Rows, t.Cols, t.Stride = kernel.BF16, p.PageTokens, layout.LatentDim, layout.LatentDim
	return t
}

// Linear writes the attention output of a linear layer for x to out.
func (s *Pass) Linear(layer int, w *LinearWeights, c Cache, out, x kernel.Tensor) {
	s.list.At("linear attention", layer)
	t, n := &s.linear, s.params.linearWidth()
	q, k, v := func(z kernel.Tensor) kernel.Tensor { return z.Columns(0, n) },
		func(z kernel.Tensor) kernel.Tensor { return z.Columns(n, 2*n) },
		func(z kernel.Tensor) kernel.Tensor { return z.Columns(2*n, 3*n) }
	s.list.Add(kernel.ProjectArgs{X: x, To: []kernel.Projection{{Out: q(t.z), W: w.Q}, {Out: k(t.z), W: w.K},
		{Out: v(t.z), W: w.V}, {Out: t.fa, W: w.FA}, {Out: t.ga, W: w.GA}, {Out: t.beta, W: w.Beta}}})
	s.list.Add(kernel.MultiplyArgs{Out: t.f, X: t.fa, W: w.FB})
	s.list.Add(kernel.MultiplyArgs{Out: t.g, X: t.ga, W: w.GB})
	of, state := kernel.Sequences{Rows: s.stateRows, Spans: s.spans, Snapshots: s.snapshots}, s.States.linear[layer]
	held := s.States.heldRows(layer)
	s.list.Add(kernel.ConvArgs{Out: t.c, X: t.z, Weight: w.Conv, State: state.Conv, Kept: c.Kept.Conv,
		Held: held.Conv, Sequences: of})
	delta := kernel.DeltaArgs{Out: t.o, Q: q(t.c), K: k(t.c), V: v(t.c), Gate: t.f, Beta: t.beta, ALog: w.ALog,
		Bias: w.Bias, State: state.Delta, Kept: c.Kept.Delta, Held: held.Delta, Sequences: of,
		Heads: s.params.LinearHeads, Bound: s.params.Bound}
	if s.plan.LinearGroup > 0 {
		delta.Chunk, delta.First = s.plan.LinearGroup, s.stateFirst
	}
	s.list.Add(delta)
	s.list.Add(kernel.GatedNormArgs{Out: t.o, X: t.o, Gate: t.g, Weight: w.Norm, Heads: s.params.LinearHeads,
		Eps: s.params.Eps})
	s.list.Add(kernel.MultiplyArgs{Out: out, X: t.o, W: w.O})
}
