package model

import (
	"fmt"

	"sparrow/internal/attn"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/record"
)

// Widths holds the sizes of the rows of a pass's results.
type Widths struct {
	Vocab   int
	Hidden  int          // values of a residual row
	Choices record.Shape // recorded choices; without layers if nothing is recorded
}

// TakeOutputs allocates the memory of a plan's results in an arena. The input block states which rows are recorded.
func TakeOutputs(p *plan.Plan, a *kernel.Arena, in attn.Inputs, activation kernel.DType, w Widths) *Outputs {
	first := a.Mark()
	o := &Outputs{Logits: a.Take(kernel.F32, p.WholeLogits, w.Vocab), Rows: in.Array(plan.RecordRows)}
	if p.WholeLogits < p.Logits || p.Pass == plan.PassBlock { // the tokens of a block are chosen one after another
		o.Best = Best{Values: a.Take(kernel.F32, p.Logits, 1), IDs: a.Take(kernel.I32, p.Logits, 1),
			LogSum: a.Take(kernel.F32, p.Logits, 1)}
	}
	if p.Pass == plan.PassBlock {
		o.Confidence = a.Take(kernel.F32, p.Logits, 1)
	}
	if p.Recorded > 0 {
		for i := range w.Choices.Layers {
			o.Recorded = append(o.Recorded, takeRecorded(p, a, activation, &w, i))
		}
	}
	o.Block = o.Logits
	n := int(a.Mark() - first)
	o.Block.DType, o.Block.Rows, o.Block.Cols, o.Block.Stride = kernel.U8, 1, n, n
	return o
}

func takeRecorded(p *plan.Plan, a *kernel.Arena, activation kernel.DType, w *Widths, layer int) (r Recorded) {
	n, s := p.Recorded, &w.Choices
	if p.Record.Hidden {
		r.Hidden = a.Take(activation, n, w.Hidden)
	}
	if p.Record.Selections && s.Selects(layer) {
		r.Selected = a.Take(kernel.I32, n, s.TopK)
		if s.Blocks > 0 && layer == s.BlockLayer {
			r.Blocks = a.Take(kernel.I32, n, s.Blocks)
		}
		if p.Record.Scores {
			r.Scores = a.Take(kernel.F32, n, s.TopK)
		}
	}
	if p.Record.Experts && s.Layers[layer].Experts {
		r.Experts, r.Weights = a.Take(kernel.I32, n, s.Chosen), a.Take(kernel.F32, n, s.Chosen)
	}
	return r
}

// Head multiplies the output rows of a pass by the vocabulary matrix. With several ranks, each rank computes the logits
// of its part of the vocabulary, and an all-gather joins them.
type Head struct {
	rows   kernel.Tensor // i32 [L, 1]: row numbers of the rows whose logits are computed
	whole  kernel.Tensor // i32 [w, 1]: indices of the output rows whose logits are returned whole; only if some are not
	picked kernel.Tensor // activation [L, width]: copies of the output rows
	logits kernel.Tensor // f32 [L, vocabulary]
	draws  kernel.Tensor // i32 [L, 10]: sampling parameters; without rows for greedy sampling
	own    kernel.Tensor // f32 [L, vocabulary/ranks]: logits of the rank's tokens; only with several ranks
	out    *Outputs
}

// HeadShape holds what the memory of a head depends on, in addition to the plan.
type HeadShape struct {
	Activation kernel.DType
	Width      int // values of an output row
	Ranks      int
}

// TakeHead allocates the memory of the output rows and of their logits.
func TakeHead(p *plan.Plan, a *kernel.Arena, in attn.Inputs, out *Outputs, s HeadShape) Head {
	h := Head{rows: in.Array(plan.LogitRows), whole: in.Array(plan.WholeRows), draws: in.Array(plan.Draws),
		picked: a.Take(s.Activation, p.Logits, s.Width), logits: out.Logits, out: out}
	if p.WholeLogits < p.Logits {
		h.logits = a.Take(kernel.F32, p.Logits, out.Logits.Cols)
	}
	if s.Ranks > 1 {
		h.own = a.Take(kernel.F32, p.Logits, out.Logits.Cols/s.Ranks)
	}
	return h
}

// Pick copies the output rows of x [T, width] and returns the copies [L, width].
func (h *Head) Pick(list *kernel.Builder, x kernel.Tensor) kernel.Tensor {
	list.Add(kernel.TakeArgs{Out: h.picked, X: x, Rows: h.rows})
	return h.picked
}

// Logits multiplies x [L, hidden] by w [the rank's tokens, hidden] and chooses a token for every row whose logits are
// not returned whole: the most probable, or a sampled token.
func (h *Head) Logits(list *kernel.Builder, x kernel.Tensor, w kernel.Matrix) {
	h.Multiply(list, x, w)
	if !h.out.Best.Values.Given() {
		return
	}
	h.Choose(list, 0, x.Rows)
	if h.whole.Rows > 0 {
		list.Add(kernel.TakeArgs{Out: h.out.Logits, X: h.logits, Rows: h.whole})
	}
}

// Multiply adds only the matrix product of Logits, without choosing tokens.
func (h *Head) Multiply(list *kernel.Builder, x kernel.Tensor, w kernel.Matrix) {
	if h.own.Given() {
		list.Add(kernel.MultiplyArgs{Out: h.own, X: x, W: w})
		list.Add(kernel.AllGatherArgs{Out: h.logits, X: h.own})
	} else {
		list.Add(kernel.MultiplyArgs{Out: h.logits, X: x, W: w})
	}
}

// Rows returns the output rows of the pass, i32 [L, 1].
func (h *Head) Rows() kernel.Tensor { return h.rows }

// Of returns the logits of output rows from to end, f32 [n, vocabulary].
func (h *Head) Of(from, end int) kernel.Tensor { return h.logits.Slice(from, end) }

// Choose chooses a token for each of the output rows [from, end), the most probable or a sampled token, and returns the
// tokens, i32 [n, 1].
func (h *Head) Choose(list *kernel.Builder, from, end int) kernel.Tensor {
	best, logits := h.out.Best, h.Of(from, end)
	ids := best.IDs.Slice(from, end)
	list.Add(kernel.CandidateArgs{Values: best.Values.Slice(from, end), IDs: ids, LogSum: best.LogSum.Slice(from, end),
		Logits: logits})
	if h.draws.Rows > 0 {
		list.Add(kernel.SampleArgs{IDs: ids, Logits: logits, Draws: h.draws.Slice(from, end)})
	}
	return ids
}

// FillTokens writes the token of every row, in plan order.
func (in *Input) FillTokens(to []int32, vocabulary int) error {
	return in.Rows(func(r attn.Row) error {
		t := in.Tokens[r.Request]
		if r.Token >= len(t) {
			return fmt.Errorf("model: request %d has %d new tokens, but the plan reads token %d", r.Request, len(t),
				r.Token)
		}
		to[r.Index] = t[r.Token]
		return attn.CheckToken(t[r.Token], vocabulary)
	})
}

// HiddenRow returns the row of the previous pass, which has the given number of rows, whose hidden state is the input
// of a row of a drafting pass.
func (in *Input) HiddenRow(request, token, rows int) (int32, error) {
	list := in.Hidden[request]
	if token >= len(list) {
		return 0, fmt.Errorf("model: draft: request %d has %d hidden states, but the plan reads state %d", request,
			len(list), token)
	}
	if h := list[token]; h >= 0 && int(h) < rows {
		return h, nil
	}
	return 0, fmt.Errorf("model: draft: request %d continues from hidden state %d of the previous pass, which had %d "+
		"rows", request, list[token], rows)
}
