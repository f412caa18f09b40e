package step

import (
	"math"
	"unsafe"

	"sparrow/internal/attn"
	"sparrow/internal/model"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/plan"
)

// Pending is an enqueued pass that the device may not have finished.
type Pending struct {
	result Result
	event  kernel.Event
	feed   *feed
}

// fetch enqueues one copy of all results of a pass to host memory.
func (r *Runner) fetch(s *side, p *pass, block []int32) (Pending, error) {
	out := p.Outputs()
	res := Result{Plan: p.says(), Vocab: r.model.Config().Vocab, pass: p, input: &s.input,
		rows: attn.NewBlock(p.plan, block).Array(plan.RecordRows)}
	n := out.Block.Cols / 4
	if cap(s.results[s.turn]) < n {
		s.results[s.turn] = make([]float32, n)
	}
	res.words = s.results[s.turn][:n]
	res.Logits = res.words[:(p.plan.WholeLogits-paddedLogits(&s.batch))*res.Vocab]
	event, err := kernel.FetchF32(r.model.Device(), res.words, out.Block)
	return Pending{result: res, event: event, feed: &r.feed}, err
}

// paddedLogits returns how many of the last whole rows of logits belong to padding requests.
func paddedLogits(b *plan.Batch) int {
	n := 0
	for i := range b.Requests {
		if q := &b.Requests[i]; q.Padding && !q.Best {
			n += q.Logits
		}
	}
	return n
}

// Plan returns the plan of the pass.
func (p Pending) Plan() *plan.Plan { return p.result.Plan }

// Wait waits for the pass and its results.
func (p Pending) Wait() (Result, error) {
	done := false
	defer p.feed.discardUnless(&done)
	if err := p.event.Wait(); err != nil {
		return Result{}, failed(p.Plan(), err)
	}
	done = true
	return p.result, nil
}

// Result is the result of a pass. It is valid until the second pass after it of the same kind (target or drafting
// layer).
type Result struct {
	Plan   *plan.Plan
	Logits []float32 // rows that were returned whole, [rows, Vocab]
	Vocab  int

	words []float32 // the complete output block in host memory
	rows  []int32   // indices of the rows of the pass that were recorded
	pass  *pass
	input *model.Input
}

// Row returns the i-th requested row of logits [vocabulary], in the order of the sequences; nil if only its best token
// was returned.
func (r Result) Row(i int) []float32 {
	if w := r.pass.whole; w != nil {
		if i = int(w[i]); i < 0 {
			return nil
		}
	}
	return r.Logits[i*r.Vocab : (i+1)*r.Vocab]
}

// wholeRows maps every requested row of logits to its index among the rows that are returned whole, or -1. The result
// is nil if all rows are returned whole, and is equal for all batches of a shape.
func wholeRows(b *plan.Batch, p *plan.Plan) []int32 {
	if p.WholeLogits == p.Logits {
		return nil
	}
	out, at := make([]int32, 0, p.Logits), int32(0)
	for i := range b.Requests {
		for range b.Requests[i].Logits {
			if b.Requests[i].Best {
				out = append(out, -1)
				continue
			}
			out = append(out, at)
			at++
		}
	}
	return out
}

// Best returns the best token of the i-th requested row of logits, its logit, and the logarithm of the sum of the row's
// exponentials. These values are available only if some row was not returned whole.
func (r Result) Best(i int) (token int32, logit, logSum float32) {
	b := r.pass.Outputs().Best
	return int32(math.Float32bits(r.view(b.IDs.Slice(i, i+1))[0])), r.view(b.Values.Slice(i, i+1))[0],
		r.view(b.LogSum.Slice(i, i+1))[0]
}

// Recorded returns the index, among the recorded rows of a pass, of the first row of a work; the other recorded rows of
// the work follow. The index is valid until the next pass of the same kind is started.
func (r Result) Recorded(work int) int {
	n := 0
	for i := range work {
		n += r.input.Batch.Batch.Requests[i].Records
	}
	return n
}

// recorded returns recorded row i of the tensor that of selects from the records of a layer, or nil if it was not
// recorded.
func (r Result) recorded(layer, i int, of func(*model.Recorded) kernel.Tensor) kernel.Tensor {
	list := r.pass.Outputs().Recorded
	if layer >= len(list) {
		return kernel.Tensor{}
	}
	t := of(&list[layer])
	if !t.Given() {
		return kernel.Tensor{}
	}
	return t.Slice(i, i+1)
}

// Hidden returns a layer's output for recorded row i, if hidden states were recorded. Rows that the device stores as
// bf16 are converted into newly allocated memory.
func (r Result) Hidden(layer, i int) []float32 {
	t := r.recorded(layer, i, func(x *model.Recorded) kernel.Tensor { return x.Hidden })
	if t.DType != kernel.BF16 {
		return r.view(t)
	}
	first := int(t.Off-r.pass.Outputs().Block.Off) / 2
	out := make([]float32, t.Cols)
	for c := range out {
		word := math.Float32bits(r.words[(first+c)/2]) // a word holds two values, the first in its lower half
		out[c] = num.FromBF16(uint16(word >> (16 * ((first + c) % 2))))
	}
	return out
}

// Selected returns the keys that recorded row i selected in a layer, padded with -1, if selections were recorded. It is
// nil for layers that share another layer's selection, and for rows of the dense form, which attend to every key.
func (r Result) Selected(layer, i int) []int32 {
	t := r.recorded(layer, i, func(x *model.Recorded) kernel.Tensor { return x.Selected })
	if !t.Given() || r.Plan.DenseRow(int(r.rows[i])) {
		return nil
	}
	return ints(r.view(t))
}

// Scores returns the scores of Selected, if they were recorded. They are undefined where Selected is padded or nil.
func (r Result) Scores(layer, i int) []float32 {
	return r.view(r.recorded(layer, i, func(x *model.Recorded) kernel.Tensor { return x.Scores }))
}

// Blocks returns the blocks of keys that a layer selects for later layers, padded with -1, if selections were recorded;
// nil for other layers. It is undefined for rows that attend to no more blocks than are selected.
func (r Result) Blocks(layer, i int) []int32 {
	t := r.recorded(layer, i, func(x *model.Recorded) kernel.Tensor { return x.Blocks })
	if !t.Given() {
		return nil
	}
	return ints(r.view(t))
}

// Experts returns the experts that recorded row i chose in a layer, and their weights, if experts were recorded; nil
// for layers without experts.
func (r Result) Experts(layer, i int) ([]int32, []float32) {
	return ints(r.view(r.recorded(layer, i, func(x *model.Recorded) kernel.Tensor { return x.Experts }))),
		r.view(r.recorded(layer, i, func(x *model.Recorded) kernel.Tensor { return x.Weights }))
}

// ints returns the memory of v as int32: both types have 4 bytes per element.
func ints(v []float32) []int32 {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*int32)(unsafe.Pointer(&v[0])), len(v))
}

// view returns a row of the output block in host memory, or nil if the block does not contain it.
func (r Result) view(t kernel.Tensor) []float32 {
	if !t.Given() {
		return nil
	}
	at := int(t.Off-r.pass.Outputs().Block.Off) / 4
	return r.words[at : at+t.Cols]
}
