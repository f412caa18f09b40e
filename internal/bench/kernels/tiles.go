package kernels

import (
	"fmt"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// tierOf returns the SIMD tier of a backend, or nil if it has none.
func tierOf(backend string) *vec.Tier {
	for _, t := range vec.Tiers() {
		if "cpu-"+t.Name == backend {
			return t
		}
	}
	return nil
}

// tiled reports whether a backend multiplies bf16 rows with a matrix unit (AMX tiles).
func tiled(backend string) bool {
	t := tierOf(backend)
	return t != nil && t.Tiled()
}

// tiles returns a GEMM of bf16 rows with a stored weight on one core, including the packing of the rows. It measures
// the matrix unit; models do not use it, because their activations are float32.
func tiles(r *Rig, d kernel.DType) *Op {
	const m, n, k = gemmRows, gemmOut, gemmIn
	w, out := r.weight(d, n, k), r.empty(kernel.F32, m, n)
	x := r.empty(kernel.BF16, m, k)
	repeat(host.U16(x), func() uint16 { return num.BF16(float32(r.rng.NormFloat64())) })
	var columns vec.Columns
	order := vec.InOrder
	if d == kernel.E4M3 {
		order = vec.Halves
	}
	run := func(dev kernel.Device) error {
		t := tierOf(dev.Name())
		if t == nil || !t.Tiled() {
			return fmt.Errorf("%w: %s has no tiles", kernel.ErrUnsupported, dev.Name())
		}
		columns.ResetBF16(m, k, order)
		for i := range columns.Chunks() {
			t.PackChunkBF16(&columns, i, host.Bytes(x), k)
		}
		c := vec.Cut{Y: host.F32(out), Ldy: out.Stride, X: &columns, M1: m, N: n}
		if d == kernel.BF16 {
			t.TiledBF16(c, host.Bytes(w.Data), w.Data.Stride)
		} else {
			t.TiledFP8(c, host.Bytes(w.Data), w.Data.Stride, host.F32(w.Scale), w.Scale.Stride, 0)
		}
		return nil
	}
	wide := r.empty(kernel.F32, m, k)
	for i, v := range host.U16(x) {
		host.F32(wide)[i] = num.FromBF16(v)
	}
	handle := matrix(w, kernel.Projected)
	return &Op{
		Run: run, Poison: poison(out),
		Check: sampled(out, 1e-4, func(ref kernel.Device, row int, to kernel.Tensor) error {
			return handle.with(ref, func(m kernel.Matrix) error {
				return kernel.Do(ref, kernel.MultiplyArgs{Out: to, X: wide.Slice(row, row+1), W: m})
			})
		}),
		FLOPs: 2 * m * n * k, Bytes: float64(w.Data.Extent()), Memory: host.Bytes(w.Data),
	}
}
