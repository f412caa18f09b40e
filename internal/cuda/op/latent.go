package op

import (
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// absorb projects queries into latent space: for each head, a product with its part of the transposed up-projection,
// and a copy of the rotated columns. If the rotation of the queries is delayed, the copy becomes a part of it, and both
// stay delayed, to be fused with Locate.
func absorb(d *Device, a kernel.AbsorbArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	w, err := own("absorb", a.KVB)
	if err != nil {
		return err
	}
	r, n := require{op: "absorb"}, a.Dims
	x := r.heads(a.Q, a.Out, n)
	x.Weight, x.WeightStride, x.WeightBatch = w.turned, int64(w.stored), int64(n.Nope+n.V)
	x.InputBatch, x.OutBatch, x.Columns, x.K = int64(n.QK()), int64(n.Row()), r.count("latent columns", n.Latent),
		r.count("key columns", n.Nope)
	rope := r.count("rotated columns", n.Rope)
	h := &d.held
	if t := &h.turn.Rotate; h.kind != holdTurn || h.turned != a.Q || int(t.Heads) != n.Heads ||
		int(t.Offset) != n.Nope || int(t.HeadDim) != n.QK() || t.Rope != rope || overlap(a.Out, a.Q) {
		if err := d.settle(); err != nil {
			return err
		}
		h.turn.Rotate = cuda.RotateArgs{X: at(a.Q), XStride: stride(a.Q), Rows: x.Rows, Heads: x.Batch,
			HeadDim: int32(n.QK()), Offset: int32(n.Nope), Rope: rope, XType: cuda.ElementBF16}
	}
	if err := perHead(d, &r, &x); err != nil || a.Q.Rows == 0 || n.Rope == 0 {
		return err
	}
	// The product reads only columns that are not rotated, so it may run before the rotation.
	t := &h.turn.Rotate
	t.Copy, t.CopyStride, t.CopyDim, t.CopyOffset = at(a.Out), stride(a.Out), int32(n.Row()), int32(n.Latent)
	h.kind, h.turned, h.copied, h.turn.Locate = holdTurn, a.Q, true, cuda.LocateArgs{}
	return nil
}

// expand projects attention outputs from latent space to value heads: for each head, a product with its part of the
// up-projection.
func expand(d *Device, a kernel.ExpandArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	w, err := own("expand", a.KVB)
	if err != nil {
		return err
	}
	r, n := require{op: "expand"}, a.Dims
	x := r.heads(a.U, a.Out, n)
	x.Weight, x.WeightStride, x.WeightBatch = w.data.Add(2*int64(n.Nope)*int64(n.Latent)), int64(n.Latent),
		int64(n.Nope+n.V)*int64(n.Latent)
	x.InputBatch, x.OutBatch, x.Columns, x.K = int64(n.Latent), int64(n.V), r.count("value columns", n.V),
		r.count("latent columns", n.Latent)
	return perHead(d, &r, &x)
}

// heads returns the description of a batched matrix product with one batch entry for each head.
func (r *require) heads(in, out kernel.Tensor, n kernel.LatentDims) cuda.Product {
	for _, t := range []struct {
		name string
		kernel.Tensor
	}{{"rows", in}, {"out", out}} {
		r.dtype(t.name, t.Tensor, kernel.BF16)
		r.aligned(t.name, t.Tensor, 16)
	}
	if n.Nope%productSide != 0 || n.V%productSide != 0 || n.Latent%productSide != 0 || n.Rope%8 != 0 {
		r.fail("heads have %d + %d and %d columns over latent rows of %d, this backend supports multiples of "+
			"%d", n.Nope, n.Rope, n.V,
			n.Latent, productSide)
	}
	return cuda.Product{Type: cuda.ProductBF16, Input: at(in), Out: at(out), InputStride: stride(in),
		OutStride: stride(out), Rows: r.count("rows", in.Rows),
		Batch: r.count("heads", n.Heads)}
}

// perHead launches the products of all heads as one batch.
func perHead(d *Device, r *require, x *cuda.Product) error {
	if r.err != nil || x.Rows == 0 {
		return r.err
	}
	return multiplyOne(d, x)
}
