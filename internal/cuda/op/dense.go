package op

import (
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// denseAttend computes causal attention over expanded keys and values. The result of a row is bitwise equal alone and
// in any batch. The key range of a row is known only on the device: a range outside the tensors of keys raises a fault.
func denseAttend(d *Device, a kernel.DenseArgs) error {
	if err := d.begin(&a); err != nil {
		return err
	}
	r := require{op: "dense attend"}
	x := r.dense(a)
	if r.err != nil || a.Q.Rows == 0 {
		return r.err
	}
	x.Faults = d.faults.Ptr()
	return d.temporary(cuda.DensePlanBytes(x.Rows), func(p cuda.Ptr) error {
		x.Plan = p
		args, err := x.Encode(d.gpu)
		if err != nil {
			return err
		}
		return cuda.DenseAttend(d.kernels, d.stream, x.Nope, x.Values, &args)
	})
}

// dense returns the kernels' description of dense attention.
func (r *require) dense(a kernel.DenseArgs) cuda.Dense {
	for _, t := range []struct {
		name string
		kernel.Tensor
	}{{"q", a.Q}, {"kv", a.KV}, {"rope", a.Rope}, {"out", a.Out}} {
		r.dtype(t.name, t.Tensor, kernel.BF16)
		r.aligned(t.name, t.Tensor, 16)
	}
	x := cuda.Dense{
		Q: at(a.Q), KV: at(a.KV), Rope: at(a.Rope), Start: at(a.Start), Lens: at(a.Lens), Out: at(a.Out),
		QStride: stride(a.Q), KVStride: stride(a.KV), RopeStride: stride(a.Rope), StartStride: stride(a.Start),
		LenStride: stride(a.Lens), OutStride: stride(a.Out), Rows: r.count("rows", a.Q.Rows),
		Keys: r.count("keys", a.KV.Rows), Heads: r.count("heads", a.Dims.Heads),
		Nope: r.count("key columns", a.Dims.Nope), Values: r.count("value columns", a.Dims.V), Scale: a.Scale,
	}
	if a.Dims.Rope != 64 || !cuda.DenseSupported(x.Nope, x.Values) {
		r.fail("heads have %d + %d columns with values of %d, this backend has kernels for 64 + 64 with 64, "+
			"128 + 64 with 128 and 192 + 64 with 256", a.Dims.Nope, a.Dims.Rope, a.Dims.V)
	}
	if a.KV.Rows == 0 && a.Q.Rows > 0 {
		r.fail("there are %d rows but no keys, want at least one key", a.Q.Rows)
	}
	return x
}

// stride returns the distance of a tensor's rows in elements; for a single row it returns the number of columns.
func stride(t kernel.Tensor) int64 {
	if t.Rows == 1 {
		return int64(t.Cols)
	}
	return int64(t.Stride)
}
