package testkit

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/ref"
	"sparrow/layout"
)

// pair runs operations on the reference and on the device under test.
type pair struct {
	*testing.T
	rng *rand.Rand
	ref kernel.Device
	dev kernel.Device
}

func newPair(t *testing.T, dev kernel.Device, seed uint64) *pair {
	return &pair{T: t, rng: rand.New(rand.NewPCG(seed, 1)), ref: &ref.Device{}, dev: dev}
}

// both holds one tensor on each device.
type both struct{ ref, dev kernel.Tensor }

func (b both) slice(from, to int) both { return both{b.ref.Slice(from, to), b.dev.Slice(from, to)} }

func (b both) columns(from, to int) both {
	return both{b.ref.Columns(from, to), b.dev.Columns(from, to)}
}

func (p *pair) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// normal returns n random values around zero.
func (p *pair) normal(n int, scale float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(p.rng.NormFloat64() * scale)
	}
	return v
}

// on copies values to a device in the given element type, rounding them.
func (p *pair) on(d kernel.Device, t kernel.DType, rows, cols int, v []float32) kernel.Tensor {
	p.Helper()
	out, err := kernel.New(d, t, rows, cols)
	p.must(err)
	p.must(d.Write(out, encode(t, v)))
	return out
}

func encode(t kernel.DType, v []float32) []byte {
	b := make([]byte, 0, len(v)*t.Size())
	for _, x := range v {
		switch t {
		case kernel.F32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		case kernel.BF16:
			b = binary.LittleEndian.AppendUint16(b, num.BF16(x))
		case kernel.F16:
			b = binary.LittleEndian.AppendUint16(b, num.F16(x))
		case kernel.E4M3:
			b = append(b, num.E4M3(x))
		default:
			panic("testkit: values cannot be encoded as " + t.String())
		}
	}
	return b
}

// activations copies the values v to both devices: to the device under test in its activation type, and to the
// reference as float32 values rounded to that type.
func (p *pair) activations(rows, cols int, v []float32) both {
	p.Helper()
	if p.dev.Activation() == kernel.BF16 {
		for i := range v {
			v[i] = num.RoundBF16(v[i])
		}
	}
	return both{p.on(p.ref, kernel.F32, rows, cols, v), p.on(p.dev, p.dev.Activation(), rows, cols, v)}
}

// random returns activations with normally distributed values on both devices.
func (p *pair) random(rows, cols int) both {
	p.Helper()
	return p.activations(rows, cols, p.normal(rows*cols, 1))
}

// floats returns a float32 tensor with values v on both devices.
func (p *pair) floats(rows, cols int, v []float32) both {
	p.Helper()
	return both{p.on(p.ref, kernel.F32, rows, cols, v), p.on(p.dev, kernel.F32, rows, cols, v)}
}

// ints returns an int32 tensor with values v on both devices.
func (p *pair) ints(rows, cols int, v []int32) both {
	p.Helper()
	var out both
	for i, d := range []kernel.Device{p.ref, p.dev} {
		t, err := kernel.New(d, kernel.I32, rows, cols)
		p.must(err)
		p.must(kernel.WriteI32(d, t, v))
		if i == 0 {
			out.ref = t
		} else {
			out.dev = t
		}
	}
	return out
}

// weights holds one matrix as each device has prepared it.
type weights struct {
	stored   kernel.Weight
	ref, dev kernel.Matrix
}

// weight returns a random matrix in a stored type, with block scales if the type has them.
func (p *pair) weight(t kernel.DType, out, in int) weights {
	p.Helper()
	return p.weightFor(kernel.Projected, t, out, in)
}

func (p *pair) weightFor(role kernel.Role, t kernel.DType, out, in int) weights {
	p.Helper()
	v := p.normal(out*in, 1/math.Sqrt(float64(in)))
	var w kernel.Weight
	if t == kernel.E4M3 {
		rows, cols := (out+127)/128, (in+127)/128
		scales := make([]float32, rows*cols)
		for i := range scales {
			scales[i] = 0.001 * (1 + p.rng.Float32()) // scales are not powers of two
		}
		for i := range v {
			v[i] *= 500
		}
		w = kernel.Weight{Scale: p.on(p.ref, kernel.F32, rows, cols, scales), BlockRows: 128, BlockCols: 128}
	}
	w.Data = p.on(p.ref, t, out, in, v)
	return p.prepare(w, role)
}

// prepare prepares a weight on both devices. The reference uses host memory.
func (p *pair) prepare(w kernel.Weight, role kernel.Role) weights {
	p.Helper()
	out := weights{stored: w}
	var err error
	out.ref, err = p.ref.Prepare(w, role)
	p.must(err)
	out.dev, err = p.dev.Prepare(w, role)
	p.must(err)
	return out
}

// experts prepares the matrices of experts on both devices.
func (p *pair) experts(gate, up, down []weights) (onRef, onDev kernel.Experts) {
	p.Helper()
	stored := func(list []weights) (out []kernel.Weight) {
		for _, w := range list {
			out = append(out, w.stored)
		}
		return out
	}
	w := kernel.ExpertWeights{Gate: stored(gate), Up: stored(up), Down: stored(down)}
	onRef, err := p.ref.PrepareExperts(w)
	p.must(err)
	onDev, err = p.dev.PrepareExperts(w)
	p.must(err)
	return onRef, onDev
}

// pools holds one cache on each device.
type pools struct{ ref, dev kernel.Pool }

func (p *pair) emptyPool(k layout.Kind, pageBytes, pages, tokens int) pools {
	p.Helper()
	var out pools
	for i, d := range []kernel.Device{p.ref, p.dev} {
		t, err := kernel.New(d, kernel.U8, pages, pageBytes)
		p.must(err)
		pool := kernel.Pool{Mem: t, Layout: k, PageTokens: tokens}
		if i == 0 {
			out.ref = pool
		} else {
			out.dev = pool
		}
	}
	return out
}

// mainPool fills a cache of latent rows with random rows. Slots in poison hold NaN.
func (p *pair) mainPool(k layout.Kind, pages, tokens int, poison map[int]bool) pools {
	p.Helper()
	l, err := layout.MainOf(k)
	p.must(err)
	out := p.emptyPool(k, l.PageBytes(tokens), pages, tokens)
	bytes := make([]byte, pages*l.PageBytes(tokens))
	for s := range pages * tokens {
		row := p.normal(layout.RowDim, 1)
		if poison[s] {
			for i := range row {
				row[i] = float32(math.NaN())
			}
		}
		l.Encode(bytes[s/tokens*l.PageBytes(tokens):][:l.PageBytes(tokens)], s%tokens, row)
	}
	p.must(p.ref.Write(out.ref.Mem, bytes))
	p.must(p.dev.Write(out.dev.Mem, bytes))
	return out
}

// indexPool fills a cache of indexer keys with random keys.
func (p *pair) indexPool(k layout.Kind, pages, tokens int) pools {
	p.Helper()
	l, err := layout.IndexOf(k)
	p.must(err)
	out := p.emptyPool(k, l.PageBytes(tokens), pages, tokens)
	bytes := make([]byte, pages*l.PageBytes(tokens))
	for s := range pages * tokens {
		l.Encode(bytes[s/tokens*l.PageBytes(tokens):][:l.PageBytes(tokens)], tokens, s%tokens,
			p.normal(layout.IndexDim, 1))
	}
	p.must(p.ref.Write(out.ref.Mem, bytes))
	p.must(p.dev.Write(out.dev.Mem, bytes))
	return out
}

// read copies a tensor of any float type to the host, row by row.
func (p *pair) read(d kernel.Device, t kernel.Tensor) []float32 {
	p.Helper()
	var out []float32
	for r := range t.Rows {
		b := make([]byte, t.Cols*t.DType.Size())
		p.must(d.Read(b, t.Slice(r, r+1)))
		for i := 0; i < len(b); i += t.DType.Size() {
			switch t.DType {
			case kernel.F32:
				out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
			case kernel.BF16:
				out = append(out, num.FromBF16(binary.LittleEndian.Uint16(b[i:])))
			default:
				p.Fatalf("testkit: no float values in %v", t)
			}
		}
	}
	return out
}

func (p *pair) readInts(d kernel.Device, t kernel.Tensor) []int32 {
	p.Helper()
	out := make([]int32, 0, t.Rows*t.Cols)
	for r := range t.Rows {
		row := make([]int32, t.Cols)
		p.must(kernel.ReadI32(d, row, t.Slice(r, r+1)))
		out = append(out, row...)
	}
	return out
}

func (p *pair) readBytes(d kernel.Device, t kernel.Tensor) []byte {
	p.Helper()
	var out []byte
	for r := range t.Rows {
		row := make([]byte, t.Cols*t.DType.Size())
		p.must(d.Read(row, t.Slice(r, r+1)))
		out = append(out, row...)
	}
	return out
}

// near checks that each element of a float tensor is within tol of the reference, relative to the larger of 1 and its
// magnitude.
func (p *pair) near(what string, b both, tol float64) {
	p.Helper()
	if p.dev.Activation() == kernel.BF16 {
		tol = max(tol, 1.0/64)
	}
	want, got := p.read(p.ref, b.ref), p.read(p.dev, b.dev)
	for i := range want {
		w, g := float64(want[i]), float64(got[i])
		if math.IsNaN(w) != math.IsNaN(g) || math.IsInf(w, 0) != math.IsInf(g, 0) ||
			math.Abs(w-g) > tol*max(1, math.Abs(w)) {
			p.Fatalf("%s: element %d,%d: got %v, the reference gives %v", what, i/b.ref.Cols, i%b.ref.Cols, g, w)
		}
	}
}

// same checks that int tensors are equal on both devices.
func (p *pair) same(what string, b both) {
	p.Helper()
	want, got := p.readInts(p.ref, b.ref), p.readInts(p.dev, b.dev)
	for i := range want {
		if want[i] != got[i] {
			p.Fatalf("%s: element %d,%d: got %d, the reference gives %d", what, i/b.ref.Cols, i%b.ref.Cols, got[i],
				want[i])
		}
	}
}

// rowwise checks that rows are independent: alone runs the operation on the device for one row and returns that row.
// That row must be bitwise equal to row r of whole.
func (p *pair) rowwise(what string, whole kernel.Tensor, alone func(r int) kernel.Tensor) {
	p.Helper()
	for _, r := range []int{0, whole.Rows / 2, whole.Rows - 1} {
		want := p.readBytes(p.dev, whole.Slice(r, r+1))
		got := p.readBytes(p.dev, alone(r))
		if string(want) != string(got) {
			p.Fatalf("%s: row %d computed alone is not bitwise equal to the row among %d rows", what, r, whole.Rows)
		}
	}
}

// like returns a new tensor on the device under test with the columns and type of t.
func (p *pair) like(t kernel.Tensor, rows int) kernel.Tensor {
	p.Helper()
	out, err := kernel.New(p.dev, t.DType, rows, t.Cols)
	p.must(err)
	return out
}
