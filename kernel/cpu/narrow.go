package cpu

import (
	"sparrow/kernel"
	"sparrow/kernel/cpu/vec"
	"sparrow/kernel/host"
)

// Opened to pack, a device with tiles keeps bfloat16 matrices a second time in twelve bits, for products of few rows: these take as long as reading
// their weights. Products of many rows, which read a weight often, take it from where it was imported.

// narrows reports whether matrices are kept in twelve bits.
func (d *Device) narrows() bool { return d.Packs() && d.tier.Tiled() }

// Import leaves bfloat16 where it lies if its matrices get a form of their own.
func (d *Device) Import(data []byte, t kernel.DType) (kernel.Buffer, error) {
	if t == kernel.BF16 && d.narrows() {
		return host.Memory{}.Import(data, t)
	}
	return d.Memory.Import(data, t)
}

// PackWeight adds the narrow form of a bfloat16 matrix that can have one and in which few enough weights are far from the others.
func (d *Device) PackWeight(w kernel.Weight) (kernel.Weight, error) {
	size := vec.NarrowBytes(w.Out(), w.In())
	if w.Data.DType != kernel.BF16 || size == 0 || !d.narrows() {
		return w, nil
	}
	n := vec.NewNarrow(w.Out(), w.In(), d.Reserve(size))
	if err := d.narrow.run(d, n.Blocks(), narrowWork{n, w.Data}, (*Device).packNarrow); err != nil {
		return w, err
	}
	if n.Worth() {
		w.Packed = n
	}
	return w, nil
}

// narrowWork packs a matrix, a block at a time.
type narrowWork struct {
	to   *vec.Narrow
	from kernel.Tensor
}

func (d *Device) packNarrow(w *narrowWork, _, block int) {
	w.to.Pack(block, host.Bytes(w.from), w.from.Stride)
}

// narrowFor is the narrow form of a weight if it has one and a part of a product from row n0 on can take it.
func narrowFor(c *vec.Cut, w kernel.Weight, n0 int) *vec.Narrow {
	n, ok := w.Packed.(*vec.Narrow)
	if !ok || c.M1-c.M0 > vec.NarrowFew || n0%vec.NarrowRows != 0 || c.N%vec.NarrowRows != 0 && n0+c.N != w.Out() {
		return nil
	}
	return n
}
