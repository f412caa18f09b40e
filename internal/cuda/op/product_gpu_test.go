package op

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// weight returns a random matrix as a checkpoint stores it; e4m3 has blocks of 128 x 128.
func (b *bench) weight(kind kernel.DType, out, in int) kernel.Weight {
	return b.blockWeight(kind, out, in, 128, 128)
}

func (b *bench) blockWeight(kind kernel.DType, out, in, blockRows, blockCols int) kernel.Weight {
	b.Helper()
	size := 1 / math.Sqrt(float64(in))
	if kind == kernel.E2M1x2 {
		return b.packedWeight(out, in)
	}
	if kind != kernel.E4M3 {
		raw := make([]byte, out*in*kind.Size())
		w := kernel.Weight{Data: b.place(b.ref, kind, out, in, raw)}
		host := []byte(w.Data.Buf.(kernel.HostBuffer))
		for i := range out * in {
			putFloat(host, kind, i, float32(size*b.rng.NormFloat64()))
		}
		return w
	}
	codes := make([]byte, out*in)
	for i := range codes {
		codes[i] = byte(b.rng.IntN(2)<<7 | b.rng.IntN(0x60))
	}
	n, m := (out+blockRows-1)/blockRows, (in+blockCols-1)/blockCols
	scales := make([]float32, n*m)
	for i := range scales {
		scales[i] = float32(size) * 0.1 * (1 + b.rng.Float32()) // not a power of two
	}
	return kernel.Weight{Data: b.place(b.ref, kind, out, in, codes), Scale: b.floats(n, m, scales).ref,
		BlockRows: blockRows, BlockCols: blockCols}
}

// packedWeight returns an e2m1 matrix with all codes, in groups of 32 with scales similar to those of a trained
// matrix.
func (b *bench) packedWeight(out, in int) kernel.Weight {
	b.Helper()
	codes, scales := make([]byte, out*in/2), make([]byte, out*in/32)
	for i := range codes {
		codes[i] = byte(b.rng.IntN(256))
	}
	for i := range scales {
		scales[i] = byte(119 + b.rng.IntN(7))
	}
	return kernel.Weight{Data: b.place(b.ref, kernel.E2M1x2, out, in/2, codes),
		Scale: b.place(b.ref, kernel.E8M0, out, in/32, scales), BlockRows: 1, BlockCols: 32}
}

// prepared prepares a weight on the reference device and on the GPU.
func (b *bench) prepared(w kernel.Weight, role kernel.Role) (onRef, onGPU kernel.Matrix) {
	b.Helper()
	onRef, err := b.ref.Prepare(w, role)
	b.must(err)
	onGPU, err = b.gpu.Prepare(w, role)
	b.must(err)
	return onRef, onGPU
}

// Products of every kind of weight agree with the reference. The cases have sizes that are not multiples of tiles, few
// and many rows, results that are written or added to the output, and both output types.
func TestGPUMultiply(t *testing.T) {
	b := onGPU(t)
	for _, c := range []struct {
		kind    kernel.DType
		out, in int
		block   int
		tol     float64 // allowed relative L2 error of the result
	}{
		{kernel.F32, 4, 256, 0, 0.02}, {kernel.F16, 8, 128, 0, 0.02}, {kernel.BF16, 1, 16, 0, 0.02},
		{kernel.BF16, 272, 1040, 0, 0.005},
		{kernel.BF16, 640, 128, 0, 0.005}, {kernel.E4M3, 576, 256, 128, 0.005}, {kernel.E4M3, 100, 96, 128, 0.005},
		{kernel.E4M3, 2112, 7168, 128, 0.005},
		{kernel.E4M3, 72, 160, 64, 0.005}, // other block sizes are stored packed
		// Short rows are multiplied and added to f32 in one launch.
		{kernel.BF16, 1297, 48, 0, 0.005}, {kernel.BF16, 643, 256, 0, 0.005}, {kernel.F32, 333, 512, 0, 0.005},
	} {
		for _, pow2 := range []bool{false, true} {
			w := b.blockWeight(c.kind, c.out, c.in, c.block, c.block)
			w.Pow2Rows = pow2
			onRef, onGPU := b.prepared(w, kernel.Projected)
			for _, rows := range []int{1, 7, 33, 64, 65, 129, 300} {
				if rows > 7 && c.out*c.in > 1<<20 {
					continue // the reference would take too long
				}
				x := b.random(rows, c.in)
				for _, add := range []bool{false, true} {
					for _, out := range []both{b.random(rows, c.out), b.normal(rows, c.out)} {
						what := fmt.Sprintf("%v %d x %d, powers of two %v, %d rows, out %v, added %v", c.kind, c.out,
							c.in, pow2, rows, out.gpu.DType, add)
						before := b.bytes(b.gpu, out.gpu)
						b.must(b.ref.Do(kernel.MultiplyArgs{Out: out.ref, X: x.ref, W: onRef, Accumulate: add}),
							b.gpu.Do(kernel.MultiplyArgs{Out: out.gpu, X: x.gpu, W: onGPU, Accumulate: add}))
						b.close(what, out, c.tol)
						r := rows / 2
						size := len(before) / rows
						one := b.place(b.gpu, out.gpu.DType, 1, c.out, before[r*size:(r+1)*size])
						b.must(b.gpu.Do(kernel.MultiplyArgs{Out: one, X: x.gpu.Slice(r, r+1), W: onGPU,
							Accumulate: add}))
						if !bytes.Equal(b.bytes(b.gpu, one), b.bytes(b.gpu, out.gpu.Slice(r, r+1))) {
							t.Errorf("%s: a row alone differs from the row in the batch", what)
						}
					}
				}
			}
		}
	}
	if _, err := b.gpu.Prepare(b.weight(kernel.BF16, 16, 24), kernel.Projected); err == nil {
		t.Error("24 columns were taken")
	}
}

// Matrix products of one set of rows that are launched together are bitwise equal to separate products, for any types
// of the other weights.
func TestGPUProject(t *testing.T) {
	b := onGPU(t)
	for _, rows := range []int{1, 40, 200} {
		gathered := b.random(rows, 576)
		x := gathered.gpu.Columns(0, 512) // rows with gaps between them
		args := kernel.ProjectArgs{X: x}
		for i, w := range []kernel.Weight{b.weight(kernel.E4M3, 320, 512), b.weight(kernel.BF16, 4, 512),
			b.weight(kernel.F32, 96, 512), b.weight(kernel.E4M3, 128, 512)} {
			w.Pow2Rows = i == 3
			_, m := b.prepared(w, kernel.Projected)
			out := b.random(rows, w.Out()).gpu
			if i == 1 {
				out = b.normal(rows, w.Out()).gpu
			}
			args.To = append(args.To, kernel.Projection{Out: out, W: m})
		}
		b.must(b.gpu.Do(args))
		for i, p := range args.To {
			one := b.place(b.gpu, p.Out.DType, rows, p.Out.Cols, nil)
			b.must(b.gpu.Do(kernel.MultiplyArgs{Out: one, X: x, W: p.W}))
			if !bytes.Equal(b.bytes(b.gpu, one), b.bytes(b.gpu, p.Out)) {
				t.Errorf("%d rows: product %d differs from a separate product", rows, i)
			}
		}
	}
}

// A tied table can be both looked up and multiplied, including tables whose vocabulary size is not a multiple of 16.
func TestGPUTiedTable(t *testing.T) {
	b := onGPU(t)
	onRef, onGPU := b.prepared(b.weight(kernel.F32, 643, 256), kernel.Tied)
	ids, x, logits := b.ints(3, 1, []int32{642, 0, 17}), b.random(3, 256), b.normal(3, 643)
	b.must(b.ref.Do(kernel.EmbedArgs{Out: x.ref, Table: onRef, IDs: ids.ref}),
		b.gpu.Do(kernel.EmbedArgs{Out: x.gpu, Table: onGPU, IDs: ids.gpu}))
	b.near("looked up", x, toBF16)
	b.must(b.ref.Do(kernel.MultiplyArgs{Out: logits.ref, X: x.ref, W: onRef}),
		b.gpu.Do(kernel.MultiplyArgs{Out: logits.gpu, X: x.gpu, W: onGPU}))
	b.close("logits", logits, 0.005)
}

// Projections of queries into latent space and of outputs back agree with the reference for the head counts of every
// model family, for one row and for several.
func TestGPULatent(t *testing.T) {
	b := onGPU(t)
	for _, d := range []kernel.LatentDims{
		{Heads: 4, Nope: 64, Rope: 64, V: 64, Latent: 512}, {Heads: 2, Nope: 128, Rope: 64, V: 128, Latent: 512},
		{Heads: 3, Nope: 192, Rope: 64, V: 256, Latent: 512},
		{Heads: 128, Nope: 128, Rope: 64, V: 128, Latent: 512},
	} {
		for _, kind := range []kernel.DType{kernel.BF16, kernel.E4M3, kernel.F32} {
			if d.Heads > 4 && kind != kernel.BF16 {
				continue
			}
			w := b.weight(kind, d.KVB(), d.Latent)
			onRef, onGPU := b.prepared(w, kernel.Latent)
			for _, rows := range []int{1, 5, 70, 200} {
				if d.Heads > 4 && rows > 5 {
					continue // the reference would take too long
				}
				what := fmt.Sprintf("%v %+v, %d rows", kind, d, rows)
				q, absorbed := b.random(rows, d.Heads*d.QK()), b.random(rows, d.Heads*d.Row())
				b.must(b.ref.Do(kernel.AbsorbArgs{Out: absorbed.ref, Q: q.ref, KVB: onRef, Dims: d}),
					b.gpu.Do(kernel.AbsorbArgs{Out: absorbed.gpu, Q: q.gpu, KVB: onGPU, Dims: d}))
				b.close("absorb "+what, absorbed, 0.005)
				u, out := b.random(rows, d.Heads*d.Latent), b.random(rows, d.Heads*d.V)
				b.must(b.ref.Do(kernel.ExpandArgs{Out: out.ref, U: u.ref, KVB: onRef, Dims: d}),
					b.gpu.Do(kernel.ExpandArgs{Out: out.gpu, U: u.gpu, KVB: onGPU, Dims: d}))
				b.close("expand "+what, out, 0.005)
				r := rows / 2
				one, first := b.random(1, d.Heads*d.Row()).gpu, b.random(1, d.Heads*d.V).gpu
				b.must(b.gpu.Do(kernel.AbsorbArgs{Out: one, Q: q.gpu.Slice(r, r+1), KVB: onGPU, Dims: d}),
					b.gpu.Do(kernel.ExpandArgs{Out: first, U: u.gpu.Slice(r, r+1), KVB: onGPU, Dims: d}))
				if !bytes.Equal(b.bytes(b.gpu, one), b.bytes(b.gpu, absorbed.gpu.Slice(r, r+1))) ||
					!bytes.Equal(b.bytes(b.gpu, first), b.bytes(b.gpu, out.gpu.Slice(r, r+1))) {
					t.Errorf("%s: a row alone differs from the row in the batch", what)
				}
			}
			rows, up := b.random(9, d.Latent), b.random(9, d.KVB())
			b.must(b.ref.Do(kernel.MultiplyArgs{Out: up.ref, X: rows.ref, W: onRef}),
				b.gpu.Do(kernel.MultiplyArgs{Out: up.gpu, X: rows.gpu, W: onGPU}))
			b.close(fmt.Sprintf("up-projection %v %+v", kind, d), up, 0.005)
		}
	}
}

// Copies keep every bit, for rows with and without gaps, and do not change the gaps between rows.
func TestGPUCopy(t *testing.T) {
	b := onGPU(t)
	for _, kind := range []kernel.DType{kernel.F32, kernel.BF16, kernel.I32, kernel.U8} {
		for _, c := range []struct{ rows, cols, from, to int }{{1, 1, 1, 1}, {5, 64, 64, 64}, {5, 64, 80, 96},
			{7, 33, 40, 35}} {
			if kind == kernel.U8 && (c.from != c.cols || c.to != c.cols) {
				continue
			}
			size := kind.Size()
			raw, hole := make([]byte, c.rows*c.from*size), make([]byte, c.rows*c.to*size)
			for i := range raw {
				raw[i] = byte(b.rng.IntN(256))
			}
			for i := range hole {
				hole[i] = 0xA5
			}
			x, out := b.place(b.gpu, kind, c.rows, c.from, raw), b.place(b.gpu, kind, c.rows, c.to, hole)
			b.must(b.gpu.Copy(kernel.CopyArgs{Out: out.Columns(0, c.cols), X: x.Columns(0, c.cols)}))
			for r := range c.rows {
				copy(hole[r*c.to*size:], raw[r*c.from*size:][:c.cols*size])
			}
			if !bytes.Equal(b.bytes(b.gpu, out), hole) {
				t.Errorf("%v %+v: bytes differ", kind, c)
			}
		}
	}
}

// The candidates equal those of the reference; the LogSum of a row with NaN is NaN.
func TestGPUCandidates(t *testing.T) {
	b := onGPU(t)
	for _, c := range []struct{ rows, columns, best int }{{1, 640, 1}, {3, 129280, 20}, {5, 8193, 64}} {
		v := make([]float32, c.rows*c.columns)
		for i := range v {
			v[i] = float32(b.rng.NormFloat64() * 4)
		}
		logits := b.floats(c.rows, c.columns, v)
		values, ids, sum := b.normal(c.rows, c.best), b.ints(c.rows, c.best, make([]int32, c.rows*c.best)),
			b.normal(c.rows, 1)
		b.must(b.ref.Do(kernel.CandidateArgs{Values: values.ref, IDs: ids.ref, LogSum: sum.ref,
			Logits: logits.ref}),
			b.gpu.Do(kernel.CandidateArgs{Values: values.gpu, IDs: ids.gpu, LogSum: sum.gpu,
				Logits: logits.gpu}))
		b.same(fmt.Sprintf("%+v ids", c), ids.ref, ids.gpu)
		b.near(fmt.Sprintf("%+v values", c), values, 0)
		b.near(fmt.Sprintf("%+v log sum", c), sum, 3e-5)
	}
	values, ids, sum := b.normal(1, 1), b.ints(1, 1, []int32{0}), b.normal(1, 1)
	logits := b.floats(1, 3, []float32{1, float32(math.NaN()), 2})
	b.must(b.gpu.Do(kernel.CandidateArgs{Values: values.gpu, IDs: ids.gpu, LogSum: sum.gpu,
		Logits: logits.gpu}))
	if got := b.values(b.gpu, sum.gpu)[0]; !math.IsNaN(got) || b.bytes(b.gpu, ids.gpu)[0] != 2 {
		t.Errorf("a row with NaN: sum %v, best %v", got, b.bytes(b.gpu, ids.gpu))
	}
}

// Products of adjacent columns with joined matrices that are launched together are bitwise equal to separate products,
// also for incomplete sequences of calls and for calls in another order.
func TestGPUBands(t *testing.T) {
	b := onGPU(t)
	const bands, in, out = 4, 256, 128
	for _, kind := range []kernel.DType{kernel.E4M3, kernel.BF16} {
		var list []kernel.Matrix
		var onRef []kernel.Matrix
		for range bands {
			r, g := b.prepared(b.weight(kind, out, in), kernel.Projected)
			list, onRef = append(list, g), append(onRef, r)
		}
		b.must(b.gpu.Join(list...))
		for _, rows := range []int{1, 3, 64, 65, 128, 300} {
			x := b.random(rows, bands*in)
			run := func(order []int, alone bool) []byte {
				z, err := kernel.New(b.gpu, kernel.BF16, rows, bands*out)
				b.must(err)
				for _, i := range order {
					b.must(b.gpu.Do(kernel.MultiplyArgs{Out: z.Columns(i*out, (i+1)*out),
						X: x.gpu.Columns(i*in, (i+1)*in), W: list[i]}))
					if alone {
						b.must(b.gpu.settle())
					}
				}
				b.must(b.gpu.settle(), b.gpu.Sync())
				return b.bytes(b.gpu, z)
			}
			want := run([]int{0, 1, 2, 3}, true)
			for _, order := range [][]int{{0, 1, 2, 3}, {0, 1, 3, 2}, {3, 0, 1, 2}, {0, 0, 1, 2, 3}, {2, 1, 0, 3}} {
				if got := run(order, false); !bytes.Equal(got, want) {
					t.Errorf("%v, %d rows in the order %v: result differs from separate products", kind, rows, order)
				}
			}
			z := b.random(rows, bands*out)
			for i := range bands {
				ref, gpu := z.ref.Columns(i*out, (i+1)*out), z.gpu.Columns(i*out, (i+1)*out)
				b.must(b.ref.Do(kernel.MultiplyArgs{Out: ref, X: x.ref.Columns(i*in, (i+1)*in), W: onRef[i]}),
					b.gpu.Do(kernel.MultiplyArgs{Out: gpu, X: x.gpu.Columns(i*in, (i+1)*in), W: list[i]}))
			}
			b.close(fmt.Sprintf("%v, %d rows by bands", kind, rows), z, 0.005)
		}
	}
}

// Products with e4m3 in blocks of 32 x 32 that merge agree with the reference, which multiplies the stored values. A
// row is bitwise equal alone and in a batch.
func TestGPUMergedProducts(t *testing.T) {
	b := onGPU(t)
	if *portableTier {
		t.Skip("only kernels for Hopper merge blocks of 32 x 32")
	}
	for _, c := range []struct{ out, in int }{{100, 96}, {272, 1280}, {1030, 512}} {
		w := b.blockWeight(kernel.E4M3, c.out, c.in, 32, 32)
		w.Pow2Rows = true
		for i := range w.Scale.Rows * w.Scale.Cols {
			host.F32(w.Scale)[i] = float32(math.Exp2(float64(b.rng.IntN(7) - 9)))
		}
		onRef, onGPU := b.prepared(w, kernel.Projected)
		if m := onGPU.(*matrix); m.kind != cuda.ProductFP8 || m.packed != "" {
			t.Errorf("%d x %d is not merged", c.out, c.in)
		}
		for _, rows := range []int{1, 16, 64, 129, 300} {
			x, out := b.random(rows, c.in), b.normal(rows, c.out)
			what := fmt.Sprintf("%d x %d, %d rows", c.out, c.in, rows)
			b.must(b.ref.Do(kernel.MultiplyArgs{Out: out.ref, X: x.ref, W: onRef}),
				b.gpu.Do(kernel.MultiplyArgs{Out: out.gpu, X: x.gpu, W: onGPU}))
			b.close(what, out, 0.001)
			r := rows / 2
			one := b.place(b.gpu, out.gpu.DType, 1, c.out, nil)
			b.must(b.gpu.Do(kernel.MultiplyArgs{Out: one, X: x.gpu.Slice(r, r+1), W: onGPU}))
			if !bytes.Equal(b.bytes(b.gpu, one), b.bytes(b.gpu, out.gpu.Slice(r, r+1))) {
				t.Errorf("%s: a row alone differs from the row in the batch", what)
			}
		}
	}
}
