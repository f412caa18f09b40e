package attn

import (
	"fmt"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// Indexer selects keys for queries: it prepares indexer queries, scores keys and selects the best keys, by the plan's
// indexer path. Its fields are the differences between the model families.
type Indexer struct {
	Heads   int
	TopK    int // number of keys that a query may attend to
	Offset  int // index of the first rotated element of a head
	Pairing kernel.Pairing
	Scales  num.ScaleMode // rounding of query scales
	Plain   bool          // queries and keys are not Hadamard-rotated in any layout
	Block   int           // keys of a candidate block; 0 if selections have one level
}

// Queries holds raw indexer queries, the product of Selection.Q and the latents, and head weights, the product of
// Selection.W and the hidden rows.
type Queries struct {
	Q       kernel.Tensor // activation [n, heads*128]
	Weights kernel.Tensor // f32 [n, heads]
}

// TakeQueries allocates memory for the raw queries of n rows.
func (x *Indexer) TakeQueries(a *kernel.Arena, activation kernel.DType, n int) Queries {
	return Queries{Q: a.Take(activation, n, x.Heads*layout.IndexDim), Weights: a.Take(kernel.F32, n, x.Heads)}
}

// IndexSpace holds the temporary tensors of a selection, for one chunk of rows.
type IndexSpace struct {
	raw     Queries       // not given if the queries of all rows are computed in one product
	q       kernel.Tensor // e4m3, f32 or bf16 [chunk, heads of the plan*128]
	weights kernel.Tensor // f32 [chunk, heads of the plan]
	scores  kernel.Tensor // f32 [chunk, score width of the plan]
	blocks  kernel.Tensor // f32 [chunk, blocks of the score width]: largest score of each block (two levels)
	keys    kernel.Pool   // gathered indexer keys, one page; not given if scores read the cache
}

// Arrange takes the tensors of a launch's selection from an arena. A launch that scores no keys needs none.
func (x *Indexer) Arrange(a *kernel.Arena, p *plan.Plan, s *plan.Segment, l *plan.Launch, keys layout.Kind,
	activation kernel.DType) (IndexSpace, error) {
	var out IndexSpace
	if !s.Scores() {
		return out, nil
	}
	n := min(s.Indexer.RowsPerChunk, l.Rows)
	if n < 1 || s.Indexer.ScoreWidth < 1 {
		return out, fmt.Errorf("attn: the plan scores %d rows of %d keys at a time, want at least one of "+
			"each", n, s.Indexer.ScoreWidth)
	}
	if s.Indexer.Kind == plan.IndexerRagged {
		kl, err := layout.IndexOf(keys)
		if err != nil {
			return out, err
		}
		// Scales are stored after the keys. With a multiple of four keys, the scales end at a multiple of 16 bytes, as
		// GPU copies require.
		n := (l.Index.Count + 3) &^ 3
		out.keys = kernel.Pool{Mem: a.Take(kernel.U8, 1, kl.PageBytes(n)), Layout: keys, PageTokens: n}
	}
	if !p.JointQueries {
		out.raw = x.TakeQueries(a, activation, n)
	}
	kind := kernel.F32
	switch keys {
	case layout.IndexPage132:
		kind = kernel.E4M3
	case layout.V41Index68:
		kind = activation // bf16 represents these rounded queries exactly
	}
	heads := x.scored(s)
	out.q, out.weights = a.Take(kind, n, heads*layout.IndexDim), a.Take(kernel.F32, n, heads)
	out.scores = a.Take(kernel.F32, n, s.Indexer.ScoreWidth)
	if x.Block > 0 {
		// Rows have a multiple of four elements (16 bytes), as GPU kernels require.
		out.blocks = a.Take(kernel.F32, n, ((s.Indexer.ScoreWidth+x.Block-1)/x.Block+3)&^3)
	}
	return out, nil
}

// scored returns the number of index heads including padding: the plan pads heads to a number that the kernels support.
func (x *Indexer) scored(s *plan.Segment) int { return max(x.Heads, s.Indexer.Heads) }

// Selection is the selection of one launch, for the rows [First, Last). Its tensors have all rows of the pass.
type Selection struct {
	Plan        *plan.Segment
	Space       *IndexSpace
	First, Last int

	Q, W           kernel.Matrix // matrices of queries (from latents) and of head weights (from hidden rows)
	Latent, Hidden kernel.Tensor // activation [T, q_lora] and [T, hidden]
	Computed       Queries       // raw queries of all rows, if the plan computes them in one product
	Angles         kernel.Tensor // f32 [T, 64]; not given if heads are not rotated

	Out            kernel.Tensor // i32 [T, K]: selected keys, numbered from the beginning of the sequence
	Values         kernel.Tensor // f32 [T, K]: scores of the selected keys; not given if they are not recorded
	Lens           kernel.Tensor // i32 [T, 1]: keys that the row may attend to
	Cache          kernel.Pool
	Table, Request kernel.Tensor // paged: i32 [requests, pages], and i32 [T, 1], the row's request
	Gather, Start  kernel.Tensor // ragged: i32 [n, 1] slots, and i32 [T, 1], the start of the row's request in Gather

	Publish *Candidates // receives the candidate blocks for later layers; nil if this layer selects none
	Within  *Candidates // candidate blocks to select from; nil for all keys
}

// Candidates holds the blocks of keys that the first level of a two-level selection selects (v41 spec, 2.4).
type Candidates struct {
	Blocks kernel.Tensor // i32 [T, most blocks]: ascending, then -1
	Counts kernel.Tensor // i32 [T, 1]: number of blocks that the row may attend to
	Keys   kernel.Tensor // i32 [T, 1]: number of keys in the row's blocks
	Rows   kernel.Tensor // i32 [T, 1]: number of the row, which is its row in Blocks
}

// Select fills the launch's rows of Out. Rows that may attend to at most TopK keys are not scored
// (kernel.ScoreArgs.SkipUpTo).
func (x *Indexer) Select(list *kernel.Builder, s *Selection) {
	args := kernel.ScoreArgs{Keys: s.Cache}
	switch x := &s.Plan.Indexer; {
	case !s.Plan.Scores() && s.Plan.NeedIndices:
		list.Add(kernel.SelectArgs{Out: s.Out.Slice(s.First, s.Last), Lens: s.Lens.Slice(s.First, s.Last),
			Values: s.values(s.First, s.Last)})
		return
	case x.Kind == plan.IndexerRagged:
		args.Keys = s.Space.keys
		list.Add(kernel.IndexGatherArgs{Out: s.Space.keys, Slots: s.Gather, Pool: s.Cache})
	case x.Kind == plan.IndexerPagedSplit:
		args.Table = s.Table
	case x.Kind == plan.IndexerPagedNative:
		args.Table, args.NextN = s.Table, x.NextN
	default:
		list.Fail(fmt.Errorf("indexer path %v is not supported: it selects no keys", x.Kind))
		return
	}
	// Scores are computed in chunks of rows, so that the score matrix is at most as large as planned.
	for first := s.First; first < s.Last; first += s.Space.scores.Rows {
		x.chunk(list, s, args, first, min(first+s.Space.scores.Rows, s.Last))
	}
}

// chunk computes scores and selections of the rows [first, last).
func (x *Indexer) chunk(list *kernel.Builder, s *Selection, args kernel.ScoreArgs, first, last int) {
	n, space := last-first, s.Space
	raw := s.Computed
	if raw.Q.Given() {
		raw = Queries{Q: raw.Q.Slice(first, last), Weights: raw.Weights.Slice(first, last)}
	} else {
		raw = Queries{Q: space.raw.Q.Slice(0, n), Weights: space.raw.Weights.Slice(0, n)}
		list.Add(kernel.MultiplyArgs{Out: raw.Q, X: s.Latent.Slice(first, last), W: s.Q})
		list.Add(kernel.MultiplyArgs{Out: raw.Weights, X: s.Hidden.Slice(first, last), W: s.W})
	}
	args.Q, args.W = space.q.Slice(0, n), space.weights.Slice(0, n)
	angles := s.Angles
	if angles.Given() {
		angles = angles.Slice(first, last)
	}
	list.Add(kernel.IndexQueryArgs{Out: args.Q, W: args.W, Q: raw.Q, Weights: raw.Weights,
		Angles: angles, Heads: x.Heads, Padded: x.scored(s.Plan), Offset: x.Offset,
		Pairing: x.Pairing, Hadamard: !x.Plain && Hadamard(s.Cache.Layout), Scales: x.Scales,
		FP4: s.Cache.Layout == layout.IndexPage68 || s.Cache.Layout == layout.V41Index68,
		V41: s.Cache.Layout == layout.V41Index68})
	lens, scores := s.Lens.Slice(first, last), space.scores.Slice(0, n)
	if w := s.Within; w != nil {
		lens, args.Blocks, args.BlockKeys = w.Keys.Slice(first, last), w.Blocks.Slice(first, last), x.Block
	}
	args.Out, args.Lens, args.Heads, args.SkipUpTo = scores, lens, x.scored(s.Plan), x.TopK
	if args.Table.Given() {
		args.TableRow = s.Request.Slice(first, last)
	} else {
		args.Start = s.Start.Slice(first, last)
	}
	list.Add(args)
	out := s.Out.Slice(first, last)
	list.Add(kernel.SelectArgs{Out: out, Scores: scores, Lens: lens, Values: s.values(first, last)})
	if w := s.Within; w != nil { // scores have one column for each key of the candidate blocks
		list.Add(kernel.LocateArgs{Out: out, Positions: out, Table: w.Blocks, TableRow: w.Rows.Slice(first, last),
			PageTokens: x.Block})
	}
	if p := s.Publish; p != nil {
		blocks := space.blocks.Slice(0, n)
		list.Add(kernel.BlockMaxArgs{Out: blocks, Scores: scores, Lens: lens, Size: x.Block, SkipUpTo: x.TopK})
		list.Add(kernel.SelectArgs{Out: p.Blocks.Slice(first, last), Scores: blocks, Lens: p.Counts.Slice(first, last)})
	}
}

// values returns the rows [first, last) of Values, or no tensor if Values is not given.
func (s *Selection) values(first, last int) kernel.Tensor {
	if !s.Values.Given() {
		return kernel.Tensor{}
	}
	return s.Values.Slice(first, last)
}

// Hadamard reports whether keys of a layout are stored Hadamard-rotated: keys in FP8 and FP4 are, float32 keys are not.
func Hadamard(k layout.Kind) bool { return k == layout.IndexPage132 || k == layout.IndexPage68 }
