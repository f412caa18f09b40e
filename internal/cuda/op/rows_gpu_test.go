package op

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
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
		table := b.weight(kernel.F32, 9, cols)
		onRef, onGPU := b.prepared(table, kernel.LookedUp)
		b.must(b.ref.Do(kernel.EmbedArgs{Out: out.ref, Table: onRef, IDs: rows.ref}),
			b.gpu.Do(kernel.EmbedArgs{Out: out.gpu, Table: onGPU, IDs: rows.gpu}))
		b.near(fmt.Sprintf("embed f32, %d columns", cols), out, toBF16)
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

// Angles are the exact values rounded once, including positions at the end of a long context.
func TestGPUAngles(t *testing.T) {
	b := onGPU(t)
	positions := []int32{0, 1, 2, 3, 100, 4095, 163839, 1048575, 1 << 30}
	for _, half := range []int{1, 32, 33} {
		freq := make([]float32, half)
		for i := range freq {
			freq[i] = float32(math.Pow(10000, -float64(i)/float64(half)))
		}
		f, p, out := b.floats(1, half, freq), b.ints(len(positions), 1, positions), b.normal(len(positions), 2*half)
		b.must(b.ref.Do(kernel.AngleArgs{Out: out.ref, Positions: p.ref, InvFreq: f.ref, Scale: 1.25}),
			b.gpu.Do(kernel.AngleArgs{Out: out.gpu, Positions: p.gpu, InvFreq: f.gpu, Scale: 1.25}))
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
				b.must(b.ref.Do(onRef), b.gpu.Do(onGPU))
				b.near(fmt.Sprintf("rotate %d heads %v inverse %v", heads, pairing, inverse), x, toBF16)
			}
		}
	}
	for _, cols := range []int{1, 67, 128, 2048, 2056, 18432} {
		for _, limit := range []float32{0, 0.5} {
			g, u, out := b.random(3, cols), b.random(3, cols), b.random(3, cols)
			b.must(b.ref.Do(kernel.GateArgs{Out: out.ref, Gate: g.ref, Up: u.ref, Limit: limit}),
				b.gpu.Do(kernel.GateArgs{Out: out.gpu, Gate: g.gpu, Up: u.gpu, Limit: limit}))
			b.near(fmt.Sprintf("gate %d columns limit %v", cols, limit), out, toBF16)
			f, w, wide := b.normal(3, cols), b.normal(3, cols), b.normal(3, cols)
			b.must(b.ref.Do(kernel.GateArgs{Out: wide.ref, Gate: f.ref, Up: w.ref, Limit: limit}),
				b.gpu.Do(kernel.GateArgs{Out: wide.gpu, Gate: f.gpu, Up: w.gpu, Limit: limit}))
			b.near(fmt.Sprintf("gate f32 %d columns limit %v", cols, limit), wide, 2e-6)
		}
	}
}

func TestGPURoute(t *testing.T) {
	b := onGPU(t)
	for _, c := range []struct{ rows, experts, topk, groups, keep int }{{1, 256, 8, 8, 4}, {77, 256, 8, 8, 4},
		{33, 64, 8, 8, 4}, {9, 64, 6, 1, 1}, {5, 1024, 32, 32, 7}, {3, 1, 1, 1, 1}, {4, 12, 3, 12, 5}} {
		logits, bias := b.normal(c.rows, c.experts), b.normal(1, c.experts)
		ids, w := b.ints(c.rows, c.topk, make([]int32, c.rows*c.topk)), b.normal(c.rows, c.topk)
		for _, norm := range []bool{true, false} {
			b.must(b.ref.Do(kernel.RouteArgs{IDs: ids.ref, Weights: w.ref, Logits: logits.ref, Bias: bias.ref,
				Groups: c.groups, KeepGroups: c.keep, Normalize: norm, Scale: 2.5}),
				b.gpu.Do(kernel.RouteArgs{IDs: ids.gpu, Weights: w.gpu, Logits: logits.gpu, Bias: bias.gpu,
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
		b.must(b.gpu.Do(kernel.NormArgs{Out: out.gpu, X: x.gpu, Weight: w.gpu, Eps: 1e-6}))
		one := b.random(1, cols)
		b.must(b.gpu.Do(kernel.NormArgs{Out: one.gpu, X: x.gpu.Slice(5, 6), Weight: w.gpu, Eps: 1e-6}))
		if !bytes.Equal(b.bytes(b.gpu, one.gpu), b.bytes(b.gpu, out.gpu.Slice(5, 6))) {
			t.Errorf("%d columns: a row alone differs from the row in the batch", cols)
		}
	}
}

func TestGPUExperts(t *testing.T) {
	b := onGPU(t)
	for _, kind := range []kernel.DType{kernel.F32, kernel.BF16, kernel.E4M3, kernel.E2M1x2} {
		experts, hidden, inner, top := 6, 272, 144, 3
		if kind == kernel.E2M1x2 { // the size is a multiple of 32, not of 64
			hidden, inner = 352, 160
		}
		var w kernel.ExpertWeights
		for range experts {
			w.Gate, w.Up = append(w.Gate, b.weight(kind, inner, hidden)), append(w.Up, b.weight(kind, inner, hidden))
			w.Down = append(w.Down, b.weight(kind, hidden, inner))
		}
		onRef, err := b.ref.PrepareExperts(w)
		b.must(err)
		onGPU, err := b.gpu.PrepareExperts(w)
		b.must(err)
		for _, rows := range []int{1, 9, 70} {
			choice := make([]int32, 0, rows*top)
			for range rows {
				for _, e := range b.rng.Perm(experts - 1)[:top] { // the last expert is never chosen
					choice = append(choice, int32(e))
				}
			}
			x, out, ids, w := b.random(rows, hidden), b.random(rows, hidden), b.ints(rows, top, choice),
				b.normal(rows, top)
			b.must(b.ref.Do(kernel.ExpertArgs{Out: out.ref, X: x.ref, IDs: ids.ref, Weights: w.ref,
				Experts: onRef}),
				b.gpu.Do(kernel.ExpertArgs{Out: out.gpu, X: x.gpu, IDs: ids.gpu, Weights: w.gpu, Experts: onGPU}))
			b.close(fmt.Sprintf("%v, %d rows", kind, rows), out, 0.01)
		}
	}
}

// close checks that the relative L2 error of x is at most tol.
func (b *bench) close(what string, x both, tol float64) {
	b.Helper()
	want, got := b.values(b.ref, x.ref), b.values(b.gpu, x.gpu)
	var off, size float64
	for i := range want {
		off += (want[i] - got[i]) * (want[i] - got[i])
		size += want[i] * want[i]
	}
	if !(math.Sqrt(off) <= tol*math.Sqrt(size)) {
		b.Errorf("%s: off by %.4f of its norm", what, math.Sqrt(off/size))
	}
}

// values returns the elements of a float tensor as float64.
func (b *bench) values(d kernel.Device, t kernel.Tensor) []float64 {
	b.Helper()
	raw, out := b.bytes(d, t), make([]float64, 0, t.Rows*t.Cols)
	for r := range t.Rows {
		for c := range t.Cols {
			if at := r*t.Stride + c; t.DType == kernel.BF16 {
				out = append(out, float64(num.FromBF16(binary.LittleEndian.Uint16(raw[2*at:]))))
			} else {
				out = append(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*at:]))))
			}
		}
	}
	return out
}
