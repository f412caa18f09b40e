package op

import (
	"errors"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// multiply multiplies rows by a weight. If the weight is e4m3 in blocks, the rows are first quantised per 128 columns.
// A product that is added to Out is rounded to the type of Out before the sum.
func multiply(d *Device, a kernel.MultiplyArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	if w, ok := a.W.(*matrix); ok && !a.Accumulate && banded(a.Out, a.X, w) {
		return band(d, &a, w)
	}
	return multiplyAll(d, "multiply", a.X, []kernel.Projection{{Out: a.Out, W: a.W}}, a.Accumulate)
}

// project multiplies rows by several weights. The rows are quantised once.
func project(d *Device, a kernel.ProjectArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	return multiplyAll(d, "project", a.X, a.To, false)
}

// multiplyAll computes products of the rows x. If the operation that computes the rows is delayed, it also quantises
// them.
func multiplyAll(d *Device, op string, x kernel.Tensor, to []kernel.Projection, add bool) error {
	streams := mixesStreams(d, x, to, add)
	if !d.held.makes(x) && !streams {
		if err := d.settle(); err != nil {
			return err
		}
	}
	r := require{op: op}
	r.dtype("x", x, kernel.BF16)
	r.aligned("x", x, 16)
	p := rowProducts{dev: d, x: x, rows: r.count("rows", x.Rows), k: r.count("columns", x.Cols)}
	var codes, scales, staged, sums int64
	var quantised *matrix // first weight that multiplies quantised rows
	for _, t := range to {
		w, err := own(op, t.W)
		if err != nil {
			return err
		}
		r.element("out", t.Out)
		if t.Out.DType == kernel.F16 {
			r.fail("out has type f16, this backend supports f32 and bf16")
		}
		if w.kind == cuda.ProductFP8 {
			codes, scales = aligned256(int64(x.Rows)*int64(x.Cols)), p.scaleBytes()
			if quantised == nil {
				quantised = w
			}
			sums = max(sums, p.sumBytes(w))
		}
		if w.packed != "" {
			sums = max(sums, p.packedSums(w))
		}
		if add && !lowRank(t.Out, w) || !add && !direct(t.Out, w) {
			staged = max(staged, int64(x.Rows)*int64(w.stored)*int64(t.Out.DType.Size()))
		}
	}
	if r.err != nil || x.Rows == 0 {
		return r.err
	}
	if add && normable(to[0].Out) || staysStaged(to, add) {
		staged = 0
	}
	staged = aligned256(staged)
	return d.temporary(codes+scales+staged+sums, func(scratch cuda.Ptr) error {
		p.codes, p.scales, p.staged = scratch, scratch.Add(codes), scratch.Add(codes+scales)
		if sums > 0 {
			p.sums = p.staged.Add(staged)
		}
		if streams {
			return p.multiplyStaged(to[0].Out, to[0].W.(*matrix))
		}
		if err := p.release(quantised); err != nil {
			return err
		}
		for i := 0; i < len(to); {
			n, out, w := together(to[i:]), to[i].Out, to[i].W.(*matrix)
			if n > 1 {
				out, w = w.group.out(out), &w.group.whole
			}
			if staysStaged(to, add) {
				return p.multiplyStaged(out, w)
			}
			i += n
			p.leads = i < len(to)
			if err := p.multiply(out, w, add); err != nil {
				return err
			}
		}
		return nil
	})
}

// release launches the operation that computes the rows, if it is delayed. If w is not nil, it also writes the rows as
// codes for products with w.
func (p *rowProducts) release(w *matrix) error {
	if d := p.dev; d.held.kind == holdNothing || w == nil {
		return d.settle()
	}
	p.quantised, p.exact = true, w.exact
	return p.dev.release(&rowCodes{codes: p.codes, scales: p.scales, stride: p.scaleStride(), exact: w.exact})
}

// direct reports whether a product kernel can write to a tensor: the tensor is as wide as the stored matrix, and its
// rows are at multiples of 16 bytes.
func direct(out kernel.Tensor, w *matrix) bool {
	bytes := int64(out.DType.Size())
	return w.stored == w.out && out.Off%16 == 0 && stride(out)*bytes%16 == 0
}

func aligned256(n int64) int64 { return (n + 255) &^ 255 }

// rowProducts holds the state of several products of the same rows.
type rowProducts struct {
	dev                   *Device
	x                     kernel.Tensor
	rows, k               int32
	codes, scales, staged cuda.Ptr // e4m3 [rows, k], f32 [ceil(k/128), scaleStride], and one product of another shape
	sums                  cuda.Ptr // memory for sums of parts of k; 0 if no product uses it
	beside                bool     // the last launch was a product of these rows that wrote directly to its output
	leads                 bool     // another product of these rows follows
	quantised             bool
	exact                 bool // scales of the codes are any float32
}

// scaleStride returns the number of elements between rows of scales: a multiple of four, because copies are 16 bytes
// wide.
func (p *rowProducts) scaleStride() int64 { return (int64(p.rows) + 3) &^ 3 }

func (p *rowProducts) scaleBytes() int64 {
	return aligned256(4 * p.scaleStride() * int64((p.k+blockSide-1)/blockSide))
}

// quantise writes the codes of the rows, unless codes with scales of this kind exist already.
func (p *rowProducts) quantise(exact bool) error {
	if p.quantised && p.exact == exact {
		return nil
	}
	p.quantised, p.exact, p.beside = true, exact, false
	a := p.codesOf(exact)
	return cuda.QuantiseRows(p.dev.kernels, p.dev.stream, &a)
}

// codesOf returns the arguments of the kernel that writes the codes.
func (p *rowProducts) codesOf(exact bool) cuda.QuantiseRowsArgs {
	return cuda.QuantiseRowsArgs{X: at(p.x), Codes: p.codes, Scales: p.scales, XStride: stride(p.x),
		CodeStride: int64(p.k), ScaleStride: p.scaleStride(),
		Rows: p.rows, Columns: p.k, Exact: flag(exact)}
}

// of returns a product with the sizes and the address of a weight.
func (p *rowProducts) of(w *matrix) cuda.Product {
	x := cuda.Product{Type: w.kind, Weight: w.data, WeightScales: w.scales, WeightStride: int64(w.in), Rows: p.rows,
		Columns: int32(w.stored), K: p.k, Batch: 1}
	if w.kind == cuda.ProductFP8 {
		x.Factors = w.factors
	}
	if w.group != nil {
		x.Whole = int32(w.group.whole.stored)
	}
	return x
}

// sumBytes returns the size of memory for partial sums with which the product with a weight, or with its group of
// weights, is faster.
func (p *rowProducts) sumBytes(w *matrix) int64 {
	x := p.of(w)
	n := x.SumBytes(p.dev.gpu)
	if w.folded {
		n += aligned256(x.UnfoldedBytes()) // stored before the sums
	}
	if w.group != nil {
		x = p.of(&w.group.whole)
		n = max(n, x.SumBytes(p.dev.gpu))
	}
	return n
}

// multiply computes one product.
func (p *rowProducts) multiply(out kernel.Tensor, w *matrix, add bool) error {
	x := p.of(w)
	x.Input, x.InputStride, x.Out, x.OutStride = at(p.x), stride(p.x), at(out), stride(out)
	x.OutF32, x.Sums = out.DType == kernel.F32, p.sums
	if w.kind == cuda.ProductFP8 {
		if err := p.quantise(w.exact); err != nil {
			return err
		}
		x.Input, x.InputStride, x.InputScales, x.ScaleStride = p.codes, int64(p.k), p.scales, p.scaleStride()
	}
	switch {
	case add && lowRank(out, w):
		return p.addLowRank(out, w)
	case add && normable(out):
		return p.multiplyAdd(&x, out, w)
	}
	whole := !add && direct(out, w)
	plain := whole && w.packed == "" && !w.folded && x.SumBytes(p.dev.gpu) == 0
	x.Beside, p.beside = plain && p.beside, plain
	x.Leads = plain && p.leads
	if !whole {
		x.Out, x.OutStride = p.staged, int64(w.stored)
	}
	if err := p.run(&x, w); err != nil || whole {
		return err
	}
	a := cuda.MoveArgs{X: p.staged, Out: at(out), XStride: int64(w.stored), OutStride: stride(out),
		Rows: int64(p.rows), Columns: int32(w.out)}
	if !x.OutF32 {
		a.XType, a.OutType = cuda.ElementBF16, cuda.ElementBF16
	}
	if add {
		a.Add = 1
	}
	return cuda.MoveRows(p.dev.kernels, p.dev.stream, &a)
}

// staysStaged reports whether a matrix product stays in scratch memory (heldStaged): it is the only product of its
// rows, with a bf16 weight and a float32 result, and no kernel can write its output directly.
func staysStaged(to []kernel.Projection, add bool) bool {
	w := to[0].W.(*matrix)
	return !add && len(to) == 1 && w.kind == cuda.ProductBF16 && w.packed == "" && to[0].Out.DType == kernel.F32 &&
		!direct(to[0].Out, w)
}

// multiplyStaged computes a product in scratch memory and delays its copy to out. If its rows are delayed, so is the
// product.
func (p *rowProducts) multiplyStaged(out kernel.Tensor, w *matrix) error {
	x := p.of(w)
	x.Input, x.InputStride, x.OutF32 = at(p.x), stride(p.x), true
	staged, err := p.dev.scratch.Get(4 * int64(p.rows) * int64(w.stored))
	if err != nil {
		return err
	}
	x.Out, x.OutStride = staged, int64(w.stored)
	h := &p.dev.held
	if h.kind == holdPost {
		h.post.product = x
	} else if err := multiplyOne(p.dev, &x); err != nil {
		return errors.Join(err, p.dev.scratch.Put(staged))
	}
	h.kind, h.staged = holdStaged, heldStaged{out: out, at: staged, stride: int64(w.stored)}
	h.scratch = append(h.scratch, staged)
	return nil
}

// multiplyAdd computes a product in scratch memory. Its addition to out is delayed.
func (p *rowProducts) multiplyAdd(x *cuda.Product, out kernel.Tensor, w *matrix) error {
	delta, err := p.dev.scratch.Get(2 * int64(p.rows) * int64(w.stored))
	if err != nil {
		return err
	}
	x.Out, x.OutStride = delta, int64(w.stored)
	if err := p.run(x, w); err != nil {
		return errors.Join(err, p.dev.scratch.Put(delta))
	}
	holdDelta(p.dev, out, delta, int64(w.stored))
	return nil
}

// multiplyFolded launches a product with a folded weight. The encoded calls are stored for the next pass, as in
// product.
func (p *rowProducts) multiplyFolded(x *cuda.Product) error {
	d, scratch := p.dev, x.Sums
	if x.Sums != 0 {
		x.Sums = x.Sums.Add(aligned256(x.UnfoldedBytes()))
	}
	call := d.folds[*x]
	if call == nil {
		made, err := x.EncodeFolded(d.gpu, scratch)
		if err != nil {
			return err
		}
		if call = &made; d.folds == nil || len(d.folds) >= mostCalls {
			d.folds = map[cuda.Product]*cuda.FoldedCalls{}
		}
		d.folds[*x] = call
	}
	return cuda.MultiplyFolded(d.kernels, d.stream, call)
}

// mostCalls is the maximum number of stored product calls, of about a kilobyte each.
const mostCalls = 8192

// multiplyOne launches a matrix product. The encoded arguments are stored for the next pass: equal passes multiply at
// equal addresses, and encoding three tensor maps takes more host time than a launch.
func multiplyOne(d *Device, x *cuda.Product) error {
	call := d.calls[*x]
	if call == nil {
		made, err := x.Encode(d.gpu)
		if err != nil {
			return err
		}
		if call = &made; d.calls == nil || len(d.calls) >= mostCalls {
			d.calls = map[cuda.Product]*cuda.ProductCall{}
		}
		d.calls[*x] = call
	}
	return cuda.Multiply(d.kernels, d.stream, call)
}
