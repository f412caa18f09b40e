package model

import (
	"fmt"

	"sparrow/attn"
	"sparrow/kernel"
	"sparrow/plan"
)

// Widths are the sizes of what a pass gives out.
type Widths struct {
	Vocab    int
	Hidden   int // of a residual row
	Layers   int
	TopK     int
	Computes func(layer int) bool // whether a layer computes a selection
}

// TakeOutputs takes the memory of a plan's results from an arena.
func TakeOutputs(p *plan.Plan, a *kernel.Arena, activation kernel.DType, w Widths) *Outputs {
	o := &Outputs{Logits: a.Take(kernel.F32, p.Logits, w.Vocab)}
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
	return o
}

// Block is the outputs as one contiguous tensor of bytes, from the first of them to the last.
func (o *Outputs) Block() kernel.Tensor {
	t := o.Logits
	end := t.Off + t.Extent()
	for _, list := range [2][]kernel.Tensor{o.Hidden, o.Selections} {
		for _, x := range list {
			if x.Given() {
				end = max(end, x.Off+x.Extent())
			}
		}
	}
	n := int(end - t.Off)
	return kernel.Tensor{Buf: t.Buf, Off: t.Off, DType: kernel.U8, Rows: 1, Cols: n, Stride: n}
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
	picked kernel.Tensor // activation [L, width]
	logits kernel.Tensor // f32 [L, vocabulary]
}

// TakeHead takes the memory of the wanted rows, each that wide.
func TakeHead(p *plan.Plan, a *kernel.Arena, in attn.Inputs, out *Outputs, activation kernel.DType, width int) Head {
	return Head{rows: in.Array(plan.LogitRows), picked: a.Take(activation, p.Logits, width), logits: out.Logits}
}

// Pick copies the wanted rows of h.
func (h *Head) Pick(q *kernel.Queue, x kernel.Tensor) kernel.Tensor {
	q.Take(kernel.TakeArgs{Out: h.picked, X: x, Rows: h.rows})
	return h.picked
}

// Logits multiplies x [L, hidden] by w [vocabulary, hidden].
func (h *Head) Logits(q *kernel.Queue, x kernel.Tensor, w kernel.Matrix) {
	q.Multiply(kernel.MultiplyArgs{Out: h.logits, X: x, W: w})
}

// FillTokens writes the token of every row, in plan order.
func (in *Input) FillTokens(to []int32, vocabulary int) error {
	return in.Rows(func(r attn.Row) error {
		t := in.Tokens[r.Request]
		if r.Token >= len(t) {
			return fmt.Errorf("model: request %d has %d new tokens, the plan asks for number %d", r.Request, len(t), r.Token)
		}
		to[r.Index] = t[r.Token]
		return attn.CheckToken(t[r.Token], vocabulary)
	})
}

// HiddenRow is the hidden state that a row of a drafting pass continues, one of the given number of rows of the pass before.
func (in *Input) HiddenRow(request, token, rows int) (int32, error) {
	list := in.Hidden[request]
	if token >= len(list) {
		return 0, fmt.Errorf("model: draft: request %d has %d hidden states, the plan asks for number %d", request, len(list), token)
	}
	if h := list[token]; h >= 0 && int(h) < rows {
		return h, nil
	}
	return 0, fmt.Errorf("model: draft: request %d continues hidden state %d of the pass before, which had %d rows", request, list[token], rows)
}
