package op

import (
	"errors"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
	"sparrow/layout"
)

// held stores operations that are delayed until the next call, so that short operations can be fused with the operation
// before or after: a norm, for example, also writes the codes that the next matrix product multiplies, and adds the
// result of the previous product. Every operation that cannot be fused, and every access to memory, first launches the
// delayed operations, so that results equal those of operations in the order of their calls. The choice of kernels
// depends on the order of operations and on the number of columns, never on the number of rows.
type held struct {
	kind holding

	sum  heldSum         // for holdSum, and for holdNorm if it is not empty
	norm kernel.NormArgs // for holdNorm
	gate kernel.GateArgs // for holdGate

	layout layout.Kind // for holdStore
	store  cuda.StoreLatentArgs
	stored [2]kernel.Tensor // tensors that the field store reads

	turn    cuda.TurnArgs // for holdTurn
	turned  kernel.Tensor // rows that turn rotates
	copied  bool          // turn also copies the rotated columns to the latent queries (Absorb)
	scratch []cuda.Ptr    // memory of the held operations

	bands heldBands // for holdBands

	staged heldStaged // for holdStaged

	heads cuda.HeadNormArgs // for holdHeads; its rows are in the field turned

	post  heldPost          // for holdPost; it may also precede the operations of holdStaged, holdMix and holdMixNorm
	mix   cuda.HyperMixArgs // for holdMix, and for holdMixNorm, whose norm is in norm
	mixed kernel.Tensor     // output of mix

	parts heldParts // parts that are launched before the operation of kind

	routes bool // a choice of experts is delayed, with or without a sum
	route  cuda.RouteArgs
}

type holding uint8

const (
	holdNothing holding = iota
	holdSum
	holdNorm
	holdGate
	holdStore
	holdTurn
	holdBands
	holdStaged
	holdHeads
	holdPost
	holdMix
	holdMixNorm
)

// heldSum describes terms whose addition to rows is delayed: a matrix product, then the results of experts.
type heldSum struct {
	rows    kernel.Tensor
	delta   cuda.Ptr // bf16 [rows, stride], or zero
	stride  int64
	experts cuda.ExpertsArgs // Results is zero if there are none
}

// heldStaged is a float32 product in scratch memory whose copy to out is delayed; its rows are as wide as the stored
// matrix. It is the product that gives the coefficients of residual streams, and the operation that uses them can read
// it in scratch memory.
type heldStaged struct {
	out    kernel.Tensor
	at     cuda.Ptr
	stride int64
}

// rowCodes is the memory for quantised rows.
type rowCodes struct {
	codes, scales cuda.Ptr // e4m3 [rows, k], f32 [ceil(k/128), stride]
	stride        int64
	exact         bool
}

// begin launches the delayed operations and checks the arguments of the next operation.
func (d *Device) begin(a interface{ Check() error }) error {
	if err := d.settle(); err != nil {
		return err
	}
	return a.Check()
}

// settle launches the delayed operations.
func (d *Device) settle() error {
	if d.held.kind == holdNothing && !d.held.routes && !d.held.parts.held() {
		return nil
	}
	return d.release(nil)
}

// release launches the delayed operations. If to is not nil, a delayed norm or activation also writes its result as
// e4m3 codes.
func (d *Device) release(to *rowCodes) error {
	h := &d.held
	kind := h.kind
	h.kind = holdNothing
	var err error
	if h.parts.held() && kind != holdNorm {
		err = releaseParts(d, nil)
	}
	if h.routes && err == nil {
		err = cuda.RouteExperts(d.kernels, d.stream, &h.route)
	}
	h.routes = false
	joins := h.post.given && kind == holdMixNorm
	if h.post.given && !joins && err == nil {
		err = h.post.launch(d)
	}
	if err != nil {
		kind = holdNothing
	}
	switch kind {
	case holdNothing:
	case holdSum, holdNorm:
		err = releaseNorm(d, kind == holdNorm, to)
	case holdGate:
		err = releaseGate(d, to)
	case holdStore:
		err = cuda.StoreLatent(d.kernels, d.stream, h.layout, &h.store)
	case holdTurn:
		err = cuda.Turn(d.kernels, d.stream, &h.turn)
	case holdBands:
		err = releaseBands(d)
	case holdHeads:
		err = cuda.HeadNorm(d.kernels, d.stream, &h.heads)
	case holdMix:
		err = cuda.HyperMix(d.kernels, d.stream, &h.mix)
	case holdMixNorm:
		x := h.post.step(&h.mix)
		x.Step.Norm = normArgs(d, true, to)
		if joins {
			err = cuda.StepStreams(d.kernels, d.stream, &x)
		} else {
			err = cuda.MixNorm(d.kernels, d.stream, &x.Step)
		}
	case holdStaged:
		err = cuda.MoveRows(d.kernels, d.stream, &cuda.MoveArgs{X: h.staged.at, Out: at(h.staged.out),
			XStride: h.staged.stride, OutStride: stride(h.staged.out), Rows: int64(h.staged.out.Rows),
			Columns: int32(h.staged.out.Cols)})
	}
	for _, p := range h.scratch {
		err = errors.Join(err, d.scratch.Put(p))
	}
	h.scratch, h.sum, h.post = h.scratch[:0], heldSum{}, heldPost{}
	return err
}

// normable reports whether the norm kernel supports a tensor.
func normable(t kernel.Tensor) bool {
	return t.DType == kernel.BF16 && t.Off%16 == 0 && stride(t)%8 == 0 && t.Cols%16 == 0 && t.Cols > 0 &&
		t.Cols <= cuda.MaxNormColumns && t.Rows > 0
}

// releaseNorm launches a delayed sum and, if norm is set, its norm.
func releaseNorm(d *Device, norm bool, to *rowCodes) error {
	a := normArgs(d, norm, to)
	if d.held.parts.held() {
		return releaseParts(d, &a)
	}
	return cuda.NormQuantise(d.kernels, d.stream, &a)
}

// normArgs returns the arguments of a delayed sum and, if norm is set, of its norm.
func normArgs(d *Device, norm bool, to *rowCodes) cuda.NormQuantiseArgs {
	s, n := &d.held.sum, &d.held.norm
	x := s.rows
	if norm {
		x = n.X
	}
	a := cuda.NormQuantiseArgs{X: at(x), XStride: stride(x), Rows: int32(x.Rows), Columns: int32(x.Cols)}
	if s.rows.Given() {
		a.Delta, a.DeltaStride, a.Sum, a.SumStride = s.delta, s.stride, at(x), stride(x)
	}
	if e := &s.experts; e.Results != 0 {
		a.Results, a.IDs, a.Shares, a.IDStride, a.ShareStride = e.Results, e.IDs, e.Weights, e.IDStride, e.WeightStride
		a.Top, a.Experts = e.Top, e.Experts
	}
	if norm {
		a.Weight, a.Epsilon, a.Out, a.OutStride = at(n.Weight), float64(n.Eps), at(n.Out), stride(n.Out)
		if n.Weight.DType == kernel.BF16 {
			a.WeightBF16 = 1
		}
	}
	if to != nil {
		a.Codes, a.Scales, a.CodeStride, a.ScaleStride = to.codes, to.scales, int64(x.Cols), to.stride
		a.Exact = flag(to.exact)
	}
	return a
}

// releaseGate launches a delayed activation.
func releaseGate(d *Device, to *rowCodes) error {
	g := &d.held.gate
	if to == nil {
		return gateRows(d, g)
	}
	return cuda.GateQuantise(d.kernels, d.stream, &cuda.GateQuantiseArgs{Gate: at(g.Gate), Up: at(g.Up), Out: at(g.Out),
		Codes: to.codes, Scales: to.scales, GateStride: stride(g.Gate), UpStride: stride(g.Up),
		OutStride: stride(g.Out), CodeStride: int64(g.Out.Cols), ScaleStride: to.stride, Rows: int32(g.Out.Rows),
		Columns: int32(g.Out.Cols), Exact: flag(to.exact), Limit: g.Limit})
}

func flag(on bool) int32 {
	if on {
		return 1
	}
	return 0
}

// makes reports whether the delayed operation computes exactly the rows x.
func (h *held) makes(x kernel.Tensor) bool {
	return (h.kind == holdNorm || h.kind == holdMixNorm) && h.norm.Out == x || h.kind == holdGate && h.gate.Out == x
}

// norm normalises rows. It is delayed, to be fused with the matrix product that multiplies the rows. It is fused with a
// delayed sum of its rows, with a delayed sum of residual streams, and with delayed parts.
func norm(d *Device, a kernel.NormArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	r := require{op: "norm"}
	r.dtype("x", a.X, kernel.BF16)
	r.dtype("out", a.Out, kernel.BF16)
	if a.Weight.DType != kernel.F32 && a.Weight.DType != kernel.BF16 {
		r.fail("the weight has type %v, this backend supports f32 and bf16", a.Weight.DType)
	}
	if r.err != nil || a.X.Rows == 0 {
		return r.err
	}
	holds := normable(a.X) && normable(a.Out) && a.Weight.Off%16 == 0
	if h := &d.held; holds && h.kind == holdMix && h.mixed == a.X && a.X == a.Out {
		h.norm = a
		if n := normArgs(d, true, nil); h.mix.Joins(&n) {
			h.kind = holdMixNorm
			return nil
		}
	}
	if !holds || (d.held.kind != holdSum || d.held.sum.rows != a.X) && !joinsParts(d, &a) {
		if err := d.settle(); err != nil {
			return err
		}
	}
	if !holds {
		return rmsNorm(d, "norm", a.Out, a.X, a.Weight, a.Eps)
	}
	d.held.kind, d.held.norm = holdNorm, a
	return nil
}

// gate computes silu(Gate) * Up. It is delayed, to be fused with the product that multiplies the result.
func gate(d *Device, a kernel.GateArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	for _, t := range []kernel.Tensor{a.Gate, a.Up, a.Out} {
		if t.DType != kernel.BF16 || t.Off%16 != 0 || stride(t)%8 != 0 || t.Cols%16 != 0 || t.Rows == 0 || t.Cols == 0 {
			return gateRows(d, &a)
		}
	}
	d.held.kind, d.held.gate = holdGate, a
	return nil
}

// holdDelta delays the addition of a matrix product, which is in scratch memory, to rows. The scratch memory is freed
// when the sum is launched.
func holdDelta(d *Device, rows kernel.Tensor, delta cuda.Ptr, stride int64) {
	h := &d.held
	h.kind, h.sum = holdSum, heldSum{rows: rows, delta: delta, stride: stride}
	h.scratch = append(h.scratch, delta)
}

// holdResults delays the addition of the experts' weighted results to rows, after a delayed matrix product for these
// rows.
func holdResults(d *Device, rows kernel.Tensor, a *cuda.ExpertsArgs, scratch cuda.Ptr) {
	h := &d.held
	h.kind, h.sum.rows, h.sum.experts = holdSum, rows, *a
	h.scratch = append(h.scratch, scratch)
}

// overlap reports whether two tensors share bytes.
func overlap(a, b kernel.Tensor) bool {
	if !a.Given() || !b.Given() || a.Rows == 0 || b.Rows == 0 {
		return false
	}
	first, second := at(a), at(b)
	return first < second.Add(b.Extent()) && second < first.Add(a.Extent())
}

// apart launches the delayed operations if the next operation writes memory that a delayed store reads.
func apart(d *Device, writes ...kernel.Tensor) error {
	for _, w := range writes {
		for _, t := range d.held.stored {
			if overlap(w, t) {
				return d.settle()
			}
		}
	}
	return nil
}
