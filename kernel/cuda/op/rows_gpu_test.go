package op

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"sparrow/internal/num"
	"sparrow/kernel"
)

func TestGPUPickedRows(t *testing.T) {
	b := onGPU(t)
	for _, cols := range []int{1, 33, 96, 576, 7168} {
		x, out := b.random(9, cols), b.random(4, cols)
		rows := b.ints(4, 1, []int32{8, 0, 8, 3})
		b.must(b.ref.Take(kernel.TakeArgs{Out: out.ref, X: x.ref, Rows: rows.ref}),
			b.gpu.Take(kernel.TakeArgs{Out: out.gpu, X: x.gpu, Rows: rows.gpu}))
		b.near(fmt.Sprintf("take %d columns", cols), out, 0)
		wide := kernel.Weight{Data: b.normal(9, cols).ref}
		onRef, err := b.ref.Prepare(wide, kernel.LookedUp)
		b.must(err)
		onGPU, err := b.gpu.Prepare(wide, kernel.LookedUp)
		b.must(err)
		b.must(b.ref.Embed(kernel.EmbedArgs{Out: out.ref, Table: onRef, IDs: rows.ref}),
			b.gpu.Embed(kernel.EmbedArgs{Out: out.gpu, Table: onGPU, IDs: rows.gpu}))
		b.near(fmt.Sprintf("embed f32, %d columns", cols), out, 1./256)
	}
	x, out := b.random(9, 40), b.random(1, 40)
	for _, row := range []int32{-1, 9} {
		b.must(b.gpu.Take(kernel.TakeArgs{Out: out.gpu, X: x.gpu, Rows: b.ints(1, 1, []int32{row}).gpu}))
		if err := b.gpu.Sync(); !errors.Is(err, kernel.ErrArgument) {
			t.Errorf("row %d of 9: %v, want ErrArgument at the next sync", row, err)
		}
	}
	b.must(b.gpu.Sync())
}

// Angles are rounded once from exact values, far into a long context too.
func TestGPUAngles(t *testing.T) {
	b := onGPU(t)
	positions := []int32{0, 1, 2, 3, 100, 4095, 163839, 1048575, 1 << 30}
	for _, half := range []int{1, 32, 33} {
		freq := make([]float32, half)
		for i := range freq {
			freq[i] = float32(math.Pow(10000, -float64(i)/float64(half)))
		}
		f, p, out := b.floats(1, half, freq), b.ints(len(positions), 1, positions), b.normal(len(positions), 2*half)
		b.must(b.ref.Angles(kernel.AngleArgs{Out: out.ref, Positions: p.ref, InvFreq: f.ref, Scale: 1.25}),
			b.gpu.Angles(kernel.AngleArgs{Out: out.gpu, Positions: p.gpu, InvFreq: f.gpu, Scale: 1.25}))
		b.near(fmt.Sprintf("%d frequencies", half), out, 1e-7)
	}
}

func TestGPURotateAndGate(t *testing.T) {
	b := onGPU(t)
	for _, heads := range []int{1, 3, 128} {
		for _, pairing := range []kernel.Pairing{kernel.Interleaved, kernel.HalfSplit} {
			for _, inverse := range []bool{false, true} {
				x, a := b.random(5, heads*192), b.angles(5)
				args := kernel.RotateArgs{Heads: heads, HeadDim: 192, Offset: 128, Pairing: pairing, Inverse: inverse}
				onRef, onGPU := args, args
				onRef.X, onRef.Angles, onGPU.X, onGPU.Angles = x.ref, a.ref, x.gpu, a.gpu
				b.must(b.ref.Rotate(onRef), b.gpu.Rotate(onGPU))
				b.near(fmt.Sprintf("rotate %d heads %v inverse %v", heads, pairing, inverse), x, 1./256)
			}
		}
	}
	for _, cols := range []int{1, 67, 128, 2048, 2056, 18432} {
		for _, limit := range []float32{0, 0.5} {
			g, u, out := b.random(3, cols), b.random(3, cols), b.random(3, cols)
			b.must(b.ref.Gate(kernel.GateArgs{Out: out.ref, Gate: g.ref, Up: u.ref, Limit: limit}),
				b.gpu.Gate(kernel.GateArgs{Out: out.gpu, Gate: g.gpu, Up: u.gpu, Limit: limit}))
			b.near(fmt.Sprintf("gate %d columns limit %v", cols, limit), out, 1./256)
			f, w, wide := b.normal(3, cols), b.normal(3, cols), b.normal(3, cols)
			b.must(b.ref.Gate(kernel.GateArgs{Out: wide.ref, Gate: f.ref, Up: w.ref, Limit: limit}),
				b.gpu.Gate(kernel.GateArgs{Out: wide.gpu, Gate: f.gpu, Up: w.gpu, Limit: limit}))
			b.near(fmt.Sprintf("gate f32 %d columns limit %v", cols, limit), wide, 2e-6)
		}
	}
}

func TestGPURoute(t *testing.T) {
	b := onGPU(t)
	for _, c := range []struct{ rows, experts, topk, groups, keep int }{
		{1, 256, 8, 8, 4}, {77, 256, 8, 8, 4}, {33, 64, 8, 8, 4}, {9, 64, 6, 1, 1}, {5, 1024, 32, 32, 7},
		{3, 1, 1, 1, 1}, {4, 12, 3, 12, 5},
	} {
		logits, bias := b.normal(c.rows, c.experts), b.normal(1, c.experts)
		ids, w := b.ints(c.rows, c.topk, make([]int32, c.rows*c.topk)), b.normal(c.rows, c.topk)
		for _, norm := range []bool{true, false} {
			b.must(b.ref.Route(kernel.RouteArgs{IDs: ids.ref, Weights: w.ref, Logits: logits.ref, Bias: bias.ref,
				Groups: c.groups, KeepGroups: c.keep, Normalize: norm, Scale: 2.5}),
				b.gpu.Route(kernel.RouteArgs{IDs: ids.gpu, Weights: w.gpu, Logits: logits.gpu, Bias: bias.gpu,
					Groups: c.groups, KeepGroups: c.keep, Normalize: norm, Scale: 2.5}))
			b.same(fmt.Sprintf("%+v ids", c), ids.ref, ids.gpu)
			b.near(fmt.Sprintf("%+v weights", c), w, 1e-6)
		}
	}
}

func TestGPUNormOfARowAlone(t *testing.T) {
	b := onGPU(t)
	for _, cols := range []int{7, 512, 1024, 1025, 1536, 7168} {
		x, w, out := b.random(9, cols), b.normal(1, cols), b.random(9, cols)
		b.must(b.gpu.Norm(kernel.NormArgs{Out: out.gpu, X: x.gpu, Weight: w.gpu, Eps: 1e-6}))
		one := b.random(1, cols)
		b.must(b.gpu.Norm(kernel.NormArgs{Out: one.gpu, X: x.gpu.Slice(5, 6), Weight: w.gpu, Eps: 1e-6}))
		if !bytes.Equal(b.bytes(b.gpu, one.gpu), b.bytes(b.gpu, out.gpu.Slice(5, 6))) {
			t.Errorf("%d columns: a row alone has other bits", cols)
		}
	}
}

// expertWeights are random experts, prepared on both sides.
func (b *bench) expertWeights(kind kernel.DType, count, hidden, inner int) (onRef, onGPU kernel.Experts) {
	b.Helper()
	weight := func(rows, cols int) kernel.Weight {
		if kind == kernel.BF16 {
			v := make([]byte, 0, 2*rows*cols)
			for range rows * cols {
				v = binary.LittleEndian.AppendUint16(v, num.BF16(float32(b.rng.NormFloat64())))
			}
			return kernel.Weight{Data: b.place(b.ref, kernel.BF16, rows, cols, v)}
		}
		codes := make([]byte, rows*cols)
		for i := range codes {
			codes[i] = byte(b.rng.IntN(2)<<7 | b.rng.IntN(0x60))
		}
		scales := make([]float32, (rows+127)/128*((cols+127)/128))
		for i := range scales {
			scales[i] = 0.01 * (1 + b.rng.Float32())
		}
		return kernel.Weight{Data: b.place(b.ref, kernel.E4M3, rows, cols, codes),
			Scale: b.floats((rows+127)/128, (cols+127)/128, scales).ref, BlockRows: 128, BlockCols: 128}
	}
	var w kernel.ExpertWeights
	for range count {
		w.Gate, w.Up = append(w.Gate, weight(inner, hidden)), append(w.Up, weight(inner, hidden))
		w.Down = append(w.Down, weight(hidden, inner))
	}
	onRef, err := b.ref.PrepareExperts(w)
	b.must(err)
	onGPU, err = b.gpu.PrepareExperts(w)
	b.must(err)
	return onRef, onGPU
}

func TestGPUExperts(t *testing.T) {
	b := onGPU(t)
	for _, kind := range []kernel.DType{kernel.BF16, kernel.E4M3} {
		const count, hidden, inner, top = 6, 272, 144, 3
		onRef, onGPU := b.expertWeights(kind, count, hidden, inner)
		for _, rows := range []int{1, 9, 70} {
			choice := make([]int32, 0, rows*top)
			for range rows {
				for _, e := range b.rng.Perm(count - 1)[:top] { // the last expert gets nothing
					choice = append(choice, int32(e))
				}
			}
			x, out := b.random(rows, hidden), b.random(rows, hidden)
			ids, w := b.ints(rows, top, choice), b.normal(rows, top)
			b.must(b.ref.Experts(kernel.ExpertArgs{Out: out.ref, X: x.ref, IDs: ids.ref, Weights: w.ref,
				Experts: onRef}),
				b.gpu.Experts(kernel.ExpertArgs{Out: out.gpu, X: x.gpu, IDs: ids.gpu, Weights: w.gpu, Experts: onGPU}))
			// Activations of e4m3 experts are quantised: 3 % of their size at each of two places.
			tol := 0.01
			if kind == kernel.E4M3 {
				tol = 0.06
			}
			b.close(fmt.Sprintf("%v, %d rows", kind, rows), out, tol)
		}
	}
	if _, err := b.gpu.PrepareExperts(kernel.ExpertWeights{}); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("no experts: %v, want ErrArgument", err)
	}
}

func TestExpertsOfOtherShapesAreRefused(t *testing.T) {
	weight := func(kind kernel.DType, rows, cols, block int) kernel.Weight {
		tensor := func(d kernel.DType, rows, cols int) kernel.Tensor {
			return kernel.Tensor{Buf: kernel.HostBuffer(make([]byte, rows*cols*d.Size())), DType: d, Rows: rows,
				Cols: cols, Stride: cols}
		}
		w := kernel.Weight{Data: tensor(kind, rows, cols)}
		if kind == kernel.E4M3 {
			w.Scale = tensor(kernel.F32, (rows+block-1)/block, (cols+block-1)/block)
			w.BlockRows, w.BlockCols = block, block
		}
		return w
	}
	for _, c := range []struct {
		kind                 kernel.DType
		hidden, inner, block int
		says                 string // empty: taken
	}{
		{kernel.E4M3, 32, 16, 128, ""}, {kernel.BF16, 32, 48, 0, ""}, {kernel.F16, 32, 16, 0, "type f16"},
		{kernel.BF16, 40, 16, 0, "multiples of 16"}, {kernel.E4M3, 32, 24, 128, "multiples of 16"},
		{kernel.E4M3, 32, 16, 64, "64 x 64"},
	} {
		gate, down := weight(c.kind, c.inner, c.hidden, c.block), weight(c.kind, c.hidden, c.inner, c.block)
		w := kernel.ExpertWeights{Gate: []kernel.Weight{gate}, Up: []kernel.Weight{gate}, Down: []kernel.Weight{down}}
		if err := w.Check(); err != nil {
			t.Fatal(err)
		}
		shape, err := expertShape(&w)
		if c.says == "" {
			if err != nil || int(shape.Hidden) != c.hidden || int(shape.Inner) != c.inner ||
				shape.BF16 != (c.kind == kernel.BF16) {
				t.Errorf("%+v: %+v, %v", c, shape, err)
			}
		} else if !errors.Is(err, kernel.ErrUnsupported) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want ErrUnsupported that says %q", c, err, c.says)
		}
	}
}

// close compares tensors by the norm of their difference.
func (b *bench) close(what string, x both, tol float64) {
	b.Helper()
	want, got := b.bytes(b.ref, x.ref), b.bytes(b.gpu, x.gpu)
	var off, size float64
	for i := range len(want) / 4 {
		w := float64(math.Float32frombits(binary.LittleEndian.Uint32(want[4*i:])))
		g := float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(got[2*i:])) << 16))
		off += (w - g) * (w - g)
		size += w * w
	}
	if !(math.Sqrt(off) <= tol*math.Sqrt(size)) {
		b.Errorf("%s: off by %.4f of its norm", what, math.Sqrt(off/size))
	}
}
