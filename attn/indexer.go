package attn

import (
	"fmt"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// Indexer selects keys for queries: it prepares indexer queries, scores keys and keeps the best, by the path a plan names. Every family with
// an indexer uses it; what differs between them is in its fields.
type Indexer struct {
	Heads   int
	TopK    int // keys each query may attend to
	Offset  int // first rotated element of a head
	Pairing kernel.Pairing
	Scales  num.ScaleMode // of quantised queries

	dev                      kernel.Device
	rawQ, rawWeights         kernel.Scratch
	q, weights, keys, scores kernel.Scratch
}

// NewIndexer prepares an indexer without memory.
func NewIndexer(dev kernel.Device, x Indexer) Indexer {
	s := kernel.NewScratch(dev)
	x.dev = dev
	x.rawQ, x.rawWeights, x.q, x.weights, x.keys, x.scores = s, s, s, s, s, s
	return x
}

// Selection is the selection of one launch: step rows First to Last. Tensors over rows hold all rows of the step.
type Selection struct {
	Plan        plan.Indexer
	First, Last int
	Longest     int // keys of the row that sees the most

	Q, W           kernel.Matrix // queries from latents, head weights from hidden rows
	Latent, Hidden kernel.Tensor // activation [T, q_lora] and [T, hidden]
	Computed       Queries       // where they were computed before
	Angles         kernel.Tensor // f32 [T, 64]

	Out            kernel.Tensor // i32 [T, K]: selected keys, counted in the sequence
	Lens           kernel.Tensor // i32 [T, 1]: keys the row sees
	Cache          kernel.Pool
	Table, Request kernel.Tensor // paged: i32 [requests, pages], and i32 [T, 1]
	Gather, Start  kernel.Tensor // ragged: i32 [n, 1] slots, and i32 [T, 1]: where the row's request begins among them
}

// Queries are what indexer queries are prepared from: one matrix times the latents, one times the hidden rows.
type Queries struct {
	Q       kernel.Tensor // activation [T, heads*128]
	Weights kernel.Tensor // f32 [T, heads]
}

// Take returns memory for the queries of n rows, for products that are computed with others of the same inputs. It is valid until the next call, or a
// Select without computed queries.
func (x *Indexer) Take(n int) (q Queries, err error) {
	if q.Q, err = x.rawQ.Take(x.dev.Activation(), n, x.Heads*layout.IndexDim); err != nil {
		return
	}
	q.Weights, err = x.rawWeights.Take(kernel.F32, n, x.Heads)
	return
}

// Scores reports whether a launch by a path of the plan, whose rows see at most longest keys, needs scores. Rows that see no more keys than they may
// keep are not scored (kernel.ScoreArgs.SkipUpTo). Where that is every row of the launch, as in the first tokens of an answer, queries for scores would
// be computed for nothing: the largest matrix of the attention would be read.
func (x *Indexer) Scores(kind plan.IndexerKind, longest int) bool {
	switch kind {
	case plan.IndexerRagged, plan.IndexerPagedSplit, plan.IndexerPagedNative:
		return longest > x.TopK
	}
	return false
}

// Select fills the launch's rows of Out.
func (x *Indexer) Select(s *Selection) error {
	args, scored := kernel.ScoreArgs{Keys: s.Cache}, x.Scores(s.Plan.Kind, s.Longest)
	switch s.Plan.Kind {
	case plan.IndexerKOnlyWithIndices:
	case plan.IndexerRagged:
		if !scored {
			break
		}
		var err error
		if args.Keys, err = x.gather(s); err != nil {
			return err
		}
	case plan.IndexerPagedSplit:
		args.Table = s.Table
	case plan.IndexerPagedNative:
		args.Table, args.NextN = s.Table, s.Plan.NextN
	default:
		return fmt.Errorf("indexer path %v is not one that selects", s.Plan.Kind)
	}
	if !scored {
		return x.dev.Select(kernel.SelectArgs{Out: s.Out.Slice(s.First, s.Last), Lens: s.Lens.Slice(s.First, s.Last)})
	}
	// Scores are computed in chunks of rows, so that their matrix stays within the plan's bound.
	chunk := s.Plan.RowsPerChunk
	if chunk <= 0 {
		return fmt.Errorf("the plan scores %d rows at a time", chunk)
	}
	for first := s.First; first < s.Last; first += chunk {
		if err := x.chunk(s, args, first, min(first+chunk, s.Last)); err != nil {
			return err
		}
	}
	return nil
}

// gather copies the keys of a launch's requests into one contiguous page.
func (x *Indexer) gather(s *Selection) (kernel.Pool, error) {
	keys, err := layout.IndexOf(s.Cache.Layout)
	if err != nil {
		return kernel.Pool{}, err
	}
	n := s.Gather.Rows
	t, err := x.keys.Take(kernel.U8, 1, keys.PageBytes(n))
	if err != nil {
		return kernel.Pool{}, err
	}
	out := kernel.Pool{Mem: t, Layout: s.Cache.Layout, PageTokens: n}
	return out, x.dev.GatherIndex(kernel.IndexGatherArgs{Out: out, Slots: s.Gather, Pool: s.Cache})
}

// chunk scores and selects rows first to last.
func (x *Indexer) chunk(s *Selection, args kernel.ScoreArgs, first, last int) error {
	scores, err := x.scores.Take(kernel.F32, last-first, s.Longest)
	if err != nil {
		return err
	}
	if args.Q, args.W, err = x.queries(s, first, last); err != nil {
		return err
	}
	lens := s.Lens.Slice(first, last)
	args.Out, args.Lens, args.Heads, args.SkipUpTo = scores, lens, x.Heads, x.TopK
	if args.Table.Given() {
		args.TableRow = s.Request.Slice(first, last)
	} else {
		args.Start = s.Start.Slice(first, last)
	}
	if err := x.dev.Scores(args); err != nil {
		return err
	}
	return x.dev.Select(kernel.SelectArgs{Out: s.Out.Slice(first, last), Scores: scores, Lens: lens})
}

// queries prepares the indexer queries and head weights of rows first to last.
func (x *Indexer) queries(s *Selection, first, last int) (q, weights kernel.Tensor, err error) {
	n, width := last-first, x.Heads*layout.IndexDim
	raw, err := x.raws(s, first, last)
	if err != nil {
		return
	}
	kind := kernel.F32
	if s.Cache.Layout == layout.IndexPage132 {
		kind = kernel.E4M3
	}
	if q, err = x.q.Take(kind, n, width); err != nil {
		return
	}
	if weights, err = x.weights.Take(kernel.F32, n, x.Heads); err != nil {
		return
	}
	err = x.dev.IndexQuery(kernel.IndexQueryArgs{Out: q, W: weights, Q: raw.Q, Weights: raw.Weights, Angles: s.Angles.Slice(first, last), Heads: x.Heads,
		Offset: x.Offset, Pairing: x.Pairing, Hadamard: Hadamard(s.Cache.Layout), Scales: x.Scales, FP4: s.Cache.Layout == layout.IndexPage68})
	return
}

// raws multiplies the inputs of rows first to last, unless that was done.
func (x *Indexer) raws(s *Selection, first, last int) (Queries, error) {
	if c := s.Computed; c.Q.Given() {
		return Queries{Q: c.Q.Slice(first, last), Weights: c.Weights.Slice(first, last)}, nil
	}
	raw, err := x.Take(last - first)
	if err != nil {
		return raw, err
	}
	if err := x.dev.Multiply(kernel.MultiplyArgs{Out: raw.Q, X: s.Latent.Slice(first, last), W: s.Q}); err != nil {
		return raw, err
	}
	return raw, x.dev.Multiply(kernel.MultiplyArgs{Out: raw.Weights, X: s.Hidden.Slice(first, last), W: s.W})
}

// Hadamard reports whether keys of a layout are kept Hadamard-rotated: quantised ones are, exact ones need no spreading of outliers.
func Hadamard(k layout.Kind) bool { return k == layout.IndexPage132 || k == layout.IndexPage68 }
