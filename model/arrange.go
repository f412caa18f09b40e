package model

import (
	"fmt"

	"sparrow/attn"
	"sparrow/kernel"
	"sparrow/plan"
)

// Widths are the row sizes of a pass's results.
type Widths struct {
	Vocab    int
	Hidden   int // of a residual row
	Layers   int
	TopK     int
	Computes func(layer int) bool // whether a layer computes a selection
}

// TakeOutputs takes the memory of a plan's results from an arena.
func TakeOutputs(p *plan.Plan, a *kernel.Arena, activation kernel.DType, w Widths) *Outputs {
	first := a.Mark()
	o := &Outputs{Logits: a.Take(kernel.F32, p.WholeLogits, w.Vocab)}
	if p.WholeLogits < p.Logits {
		o.Best = Best{Values: a.Take(kernel.F32, p.Logits, 1), IDs: a.Take(kernel.I32, p.Logits, 1),
			LogSum: a.Take(kernel.F32, p.Logits, 1)}
	}
	for i := range w.Layers {
		if p.Record.Hidden {
			o.Hidden = append(o.Hidden, a.Take(activation, p.Rows, w.Hidden))
		}
		if p.Record.Selections {
			var t kernel.Tensor
			if w.Computes(i) {
				t = a.Take(kernel.I32, p.Rows, w.TopK)
			}
			o.Selections = append(o.Selections, t)
		}
	}
	o.Block = o.Logits
	n := int(a.Mark() - first)
	o.Block.DType, o.Block.Rows, o.Block.Cols, o.Block.Stride = kernel.U8, 1, n, n
	return o
}

// SelectionOf is where layer i's selection is recorded; not given where it is not.
func (o *Outputs) SelectionOf(i int) kernel.Tensor {
	if i < len(o.Selections) {
		return o.Selections[i]
	}
	return kernel.Tensor{}
}

// Head multiplies the wanted rows of a pass by the matrix of the vocabulary.
type Head struct {
	rows   kernel.Tensor // i32 [L, 1]
	whole  kernel.Tensor // i32 [w, 1]: rows that come back whole, where not all do
	picked kernel.Tensor // activation [L, width]
	logits kernel.Tensor // f32 [L, vocabulary]
	out    *Outputs
}

// TakeHead takes the memory of the wanted rows, each that wide.
func TakeHead(p *plan.Plan, a *kernel.Arena, in attn.Inputs, out *Outputs, activation kernel.DType, width int) Head {
	h := Head{rows: in.Array(plan.LogitRows), whole: in.Array(plan.WholeRows),
		picked: a.Take(activation, p.Logits, width), logits: out.Logits, out: out}
	if p.WholeLogits < p.Logits {
		h.logits = a.Take(kernel.F32, p.Logits, out.Logits.Cols)
	}
	return h
}

// Pick copies the wanted rows of h.
func (h *Head) Pick(q *kernel.Queue, x kernel.Tensor) kernel.Tensor {
	q.Take(kernel.TakeArgs{Out: h.picked, X: x, Rows: h.rows})
	return h.picked
}

// Logits multiplies x [L, hidden] by w [vocabulary, hidden] and finds the best token of every row where rows do not
// come back whole.
func (h *Head) Logits(q *kernel.Queue, x kernel.Tensor, w kernel.Matrix) {
	q.Multiply(kernel.MultiplyArgs{Out: h.logits, X: x, W: w})
	best := h.out.Best
	if !best.Values.Given() {
		return
	}
	q.Candidates(kernel.CandidateArgs{Values: best.Values, IDs: best.IDs, LogSum: best.LogSum, Logits: h.logits})
	if h.whole.Rows > 0 {
		q.Take(kernel.TakeArgs{Out: h.out.Logits, X: h.logits, Rows: h.whole})
	}
}

// FillTokens writes the token of every row, in plan order.
func (in *Input) FillTokens(to []int32, vocabulary int) error {
	return in.Rows(func(r attn.Row) error {
		t := in.Tokens[r.Request]
		if r.Token >= len(t) {
			return fmt.Errorf("model: request %d has %d new tokens, the plan reads token %d", r.Request, len(t),
				r.Token)
		}
		to[r.Index] = t[r.Token]
		return attn.CheckToken(t[r.Token], vocabulary)
	})
}

// HiddenRow is the hidden state that a row of a drafting pass continues, one of the given number of rows of the pass
// before.
func (in *Input) HiddenRow(request, token, rows int) (int32, error) {
	list := in.Hidden[request]
	if token >= len(list) {
		return 0, fmt.Errorf("model: draft: request %d has %d hidden states, the plan reads state %d", request,
			len(list), token)
	}
	if h := list[token]; h >= 0 && int(h) < rows {
		return h, nil
	}
	return 0, fmt.Errorf("model: draft: request %d continues hidden state %d of the pass before, which had %d rows",
		request, list[token], rows)
}
