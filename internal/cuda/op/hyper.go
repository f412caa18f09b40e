package op

import (
	"errors"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// hyperPre computes the input of a sublayer from the residual streams.
func hyperPre(d *Device, a kernel.HyperPreArgs) error {
	if err := beginMix(d, &a, a.Mix); err != nil {
		return err
	}
	r := require{op: "hyper prepare"}
	args := r.streams(a.Out, a.X, a.Mix, a.Streams)
	args.Base, args.Scale, args.Post, args.Comb = at(a.Base), at(a.Scale), at(a.Post), at(a.Comb)
	args.PostStride, args.CombStride = stride(a.Post), stride(a.Comb)
	if a.Pre.Given() {
		args.Next, args.NextStride = at(a.Pre), stride(a.Pre)
	}
	if a.Carried.Given() {
		args.Carried, args.CarriedStride = at(a.Carried), stride(a.Carried)
	}
	args.NormEpsilon, args.Epsilon, args.Rounds = float64(a.NormEps), a.Eps, r.count("rounds", a.Rounds)
	if r.err != nil || args.Rows == 0 || args.Hidden == 0 {
		return errors.Join(r.err, d.settle())
	}
	return mixStreams(d, &args, a.Out, a.Mix)
}

// hyperHead computes one row per token from the streams after the last layer.
func hyperHead(d *Device, a kernel.HyperHeadArgs) error {
	if err := beginMix(d, &a, a.Mix); err != nil {
		return err
	}
	r := require{op: "hyper head"}
	args := r.streams(a.Out, a.X, a.Mix, a.Streams)
	args.Base, args.Scale, args.NormEpsilon, args.Epsilon = at(a.Base), at(a.Scale), float64(a.NormEps), a.Eps
	if r.err != nil || args.Rows == 0 || args.Hidden == 0 {
		return errors.Join(r.err, d.settle())
	}
	return mixStreams(d, &args, a.Out, a.Mix)
}

// beginMix checks the arguments of an operation on residual streams and launches the delayed operations, except a
// product that the operation reads in scratch memory.
func beginMix(d *Device, a interface{ Check() error }, mix kernel.Tensor) error {
	if d.held.kind == holdStaged && d.held.staged.out == mix && !d.held.routes && !d.held.parts.held() {
		return a.Check()
	}
	return d.begin(a)
}

// mixStreams delays a sum of residual streams, to be fused with the norm of its output. If the matrix product is in
// scratch memory (heldStaged), the kernel reads it there and copies it to mix.
func mixStreams(d *Device, a *cuda.HyperMixArgs, out, mix kernel.Tensor) error {
	h := &d.held
	if h.kind == holdStaged {
		a.Mix, a.MixStride, a.Kept, a.KeptStride = h.staged.at, h.staged.stride, at(mix), stride(mix)
	}
	if x := h.post.step(a); h.post.given && (!x.Joins(d.gpu) || overlap(out, h.post.sub)) {
		if err := h.post.launch(d); err != nil {
			return errors.Join(err, d.settle())
		}
	}
	h.kind, h.mix, h.mixed = holdMix, *a, out
	return nil
}

// streams returns the arguments that are common to HyperPre and HyperHead.
func (r *require) streams(out, x, mix kernel.Tensor, n int) cuda.HyperMixArgs {
	r.dtype("x", x, kernel.BF16)
	r.dtype("out", out, kernel.BF16)
	return cuda.HyperMixArgs{X: at(x), Mix: at(mix), Out: at(out), XStride: stride(x), MixStride: stride(mix),
		OutStride: stride(out), Rows: r.count("rows", x.Rows), Hidden: r.count("columns", out.Cols),
		Streams: r.count("streams", n)}
}

// heldPost is a sublayer's output whose addition to the streams is delayed, and the product of these streams if that
// was called next. If the operations that follow compute the input of the next sublayer, all run in one kernel.
type heldPost struct {
	given   bool
	x, sub  kernel.Tensor
	add     cuda.HyperSumArgs // Sum is empty if there are no experts' results to add first
	product cuda.Product      // Rows is zero if there is no product
}

// step returns the arguments of the kernel that computes everything up to the sum of the streams.
func (p *heldPost) step(mix *cuda.HyperMixArgs) cuda.HyperStep {
	return cuda.HyperStep{Product: p.product, Add: p.add, Step: cuda.MixNormArgs{Mix: *mix}}
}

// launch computes the sum and the product, in one launch if there are many rows.
func (p *heldPost) launch(d *Device) error {
	held := *p
	*p = heldPost{}
	if held.product.Rows > 0 {
		if x := held.step(&cuda.HyperMixArgs{}); x.JoinsMany(d.gpu) {
			return cuda.AddAndMultiply(d.kernels, d.stream, &x)
		}
	}
	var err error
	if held.add.Sum.Results != 0 {
		err = cuda.HyperPostSum(d.kernels, d.stream, &held.add)
	} else {
		err = cuda.HyperPost(d.kernels, d.stream, &held.add.Post)
	}
	if err == nil && held.product.Rows > 0 {
		err = multiplyOne(d, &held.product)
	}
	return err
}

// mixesStreams reports whether a product multiplies the streams to which a delayed operation adds an output.
func mixesStreams(d *Device, x kernel.Tensor, to []kernel.Projection, add bool) bool {
	h := &d.held
	if h.kind != holdPost || h.post.x != x || len(to) != 1 {
		return false
	}
	w, ok := to[0].W.(*matrix)
	return ok && w.group == nil && staysStaged(to, add)
}

// hyperPost adds a sublayer's output to the streams. It is delayed if a kernel does more than this addition for the
// number of rows.
func hyperPost(d *Device, a kernel.HyperPostArgs) error {
	adds := addsUp(d, &a)
	if !adds {
		if err := d.settle(); err != nil {
			return err
		}
	}
	if err := a.Check(); err != nil {
		return err
	}
	r := require{op: "hyper post"}
	r.dtype("x", a.X, kernel.BF16)
	r.dtype("sub", a.Sub, kernel.BF16)
	args := cuda.HyperPostArgs{X: at(a.X), Sub: at(a.Sub), Post: at(a.Post), Comb: at(a.Comb), XStride: stride(a.X),
		SubStride: stride(a.Sub), PostStride: stride(a.Post), CombStride: stride(a.Comb),
		Rows: r.count("rows", a.X.Rows), Hidden: r.count("columns", a.Sub.Cols), Streams: r.count("streams", a.Streams)}
	if r.err != nil || args.Rows == 0 || args.Hidden == 0 {
		return errors.Join(r.err, d.settle())
	}
	h := &d.held
	h.post = heldPost{given: true, x: a.X, sub: a.Sub, add: cuda.HyperSumArgs{Post: args}}
	if adds {
		h.post.add.Sum = normArgs(d, false, nil)
	}
	h.kind, h.sum = holdPost, heldSum{}
	if !cuda.HyperStepFits(d.gpu, args.Rows, args.Streams, args.Hidden) &&
		!cuda.HyperManyFits(d.gpu, args.Rows, args.Streams, args.Hidden) {
		return d.settle()
	}
	return nil
}

// addsUp reports whether the output of a sublayer is a delayed sum of experts' results. The sum is then computed in the
// launch that adds it to the streams.
func addsUp(d *Device, a *kernel.HyperPostArgs) bool {
	h := &d.held
	return h.kind == holdSum && !h.routes && h.sum.experts.Results != 0 && h.sum.rows == a.Sub &&
		a.Streams <= cuda.SumStreams && normable(a.Sub) && a.X.DType == kernel.BF16 && a.X.Off%16 == 0 &&
		stride(a.X)%8 == 0
}

// headNorm normalises every head, without weights. It is delayed: if the heads are rotated next, both run in one
// kernel.
func headNorm(d *Device, a kernel.HeadNormArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "head norm"}
	r.dtype("x", a.X, kernel.BF16)
	args := cuda.HeadNormArgs{X: at(a.X), Epsilon: float64(a.Eps), XStride: stride(a.X),
		Rows: r.count("rows", a.X.Rows), Heads: r.count("heads", a.Heads),
		Columns: r.count("columns of a head", a.X.Cols/a.Heads)}
	if r.err != nil || args.Rows == 0 || args.Columns == 0 {
		return r.err
	}
	d.held.kind, d.held.heads, d.held.turned = holdHeads, args, a.X
	return nil
}
