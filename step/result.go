package step

import (
	"unsafe"

	"sparrow/attn"
	"sparrow/kernel"
	"sparrow/plan"
)

// Pending is a pass that the device works on.
type Pending struct {
	r    *Runner
	side *side
	pass *pass
}

// Plan is the plan of the pass.
func (p Pending) Plan() *plan.Plan { return p.pass.plan }

// Wait waits for the pass and copies its results to host memory, all of them at once.
func (p Pending) Wait() (Result, error) {
	dev, out := p.r.model.Device(), p.pass.Outputs()
	res := Result{Plan: p.pass.plan, Vocab: p.r.model.Config().Vocab, pass: p.pass, input: &p.side.input}
	block := out.Block()
	if n := block.Cols / 4; n > 0 {
		if cap(p.side.result) < n {
			p.side.result = make([]float32, n)
		}
		res.words = p.side.result[:n]
		if err := kernel.ReadF32(dev, res.words, block); err != nil {
			return Result{}, err
		}
		res.Logits = res.words[:out.Logits.Rows*res.Vocab]
	}
	return res, dev.Sync()
}

// Result is what a pass gave. Logits holds the wanted rows, vocabulary floats each, sequence after sequence. It is valid until the next pass
// of the same kind, of the target or of the drafting layer.
type Result struct {
	Plan   *plan.Plan
	Logits []float32
	Vocab  int

	words []float32 // the whole output block
	pass  *pass
	input interface {
		Rows(visit func(attn.Row) error) error
	}
}

// Row is the i-th wanted row of logits.
func (r Result) Row(i int) []float32 { return r.Logits[i*r.Vocab : (i+1)*r.Vocab] }

// Rows calls visit for every row of the pass, in the order of recorded rows.
func (r Result) Rows(visit func(attn.Row) error) error { return r.input.Rows(visit) }

// Hidden is row i behind a layer, where hidden states were recorded as float32.
func (r Result) Hidden(layer, i int) []float32 {
	return r.view(r.pass.Outputs().Hidden[layer].Slice(i, i+1))
}

// Selected is what row i selected in a layer, -1 at the end, where selections were recorded; nil for layers that share another's, and for
// rows of the dense form, which select nothing.
func (r Result) Selected(layer, i int) []int32 {
	t := r.pass.Outputs().Selections[layer]
	if !t.Given() {
		return nil
	}
	for j := range r.Plan.Segments {
		if s := &r.Plan.Segments[j]; i >= s.FirstRow && i < s.FirstRow+s.Rows && s.Form == plan.FormDenseMHA {
			return nil
		}
	}
	v := r.view(t.Slice(i, i+1))
	// The same memory as int32: both have 4 bytes an element.
	return unsafe.Slice((*int32)(unsafe.Pointer(&v[0])), len(v))
}

// view finds a tensor of the output block in host memory.
func (r Result) view(t kernel.Tensor) []float32 {
	at := int(t.Off-r.pass.Outputs().Logits.Off) / 4
	return r.words[at : at+t.Cols]
}
