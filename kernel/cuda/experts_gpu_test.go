package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/internal/cuda/expect"
	"sparrow/internal/num"
)

// expertRig holds a layer of random experts on the device and on the host.
type expertRig struct {
	*rig
	shape          ExpertShape
	packed         PackedExperts
	gate, up, down []*blockMatrix
	rng            *rand.Rand
}

// matrix returns a random weight on the host and on the device.
func (r *expertRig) matrix(rows, columns int) (*blockMatrix, Matrix) {
	m := &blockMatrix{Rows: rows, Columns: columns}
	size := 1 / math.Sqrt(float64(columns))
	if r.shape.E2M1 {
		return m, r.packed4(m)
	}
	if r.shape.BF16 {
		m.Values = make([]uint16, rows*columns)
		pool := make([]uint16, 4096)
		for i := range pool {
			pool[i] = num.BF16(float32(r.rng.NormFloat64() * size))
		}
		for i := range m.Values {
			m.Values[i] = pool[r.rng.Uint32()%4096]
		}
		return m, Matrix{Data: upload(r.rig, m.Values), Stride: int64(columns)}
	}
	m.Codes = make([]byte, rows*columns)
	pool := make([]byte, 4096)
	for i := range pool {
		pool[i] = num.E4M3(float32(r.rng.NormFloat64() * 60))
	}
	for i := range m.Codes {
		m.Codes[i] = pool[r.rng.Uint32()%4096]
	}
	m.Scales = make([]float32, (rows+127)/128*((columns+127)/128))
	for i := range m.Scales {
		m.Scales[i] = float32(size / 60 * (0.5 + r.rng.Float64()))
	}
	return m, Matrix{Data: upload(r.rig, m.Codes), Scales: upload(r.rig, m.Scales), Stride: int64(columns),
		ScaleStride: int64((columns + 127) / 128)}
}

// packed4 fills m with random e2m1 weights: all codes occur, and scales differ by a factor of up to 2^14 or by less.
func (r *expertRig) packed4(m *blockMatrix) Matrix {
	codes, scales := make([]byte, m.Rows*m.Columns/2), make([]byte, m.Rows*m.Columns/32)
	binades := 5 + r.rng.IntN(2)*10
	for i := range scales {
		scales[i] = byte(124 - r.rng.IntN(binades))
	}
	m.Exact = make([]float64, m.Rows*m.Columns)
	for i := range codes {
		codes[i] = byte(r.rng.IntN(256))
		even, odd := num.UnpackE2M1(codes[i])
		scale := num.FromE8M0(scales[i/16])
		m.Exact[2*i], m.Exact[2*i+1] = float64(num.FromE2M1(even)*scale), float64(num.FromE2M1(odd)*scale)
	}
	return Matrix{Data: upload(r.rig, codes), Scales: upload(r.rig, scales), Stride: int64(m.Columns),
		ScaleStride: int64(m.Columns / 32)}
}

// expertKinds returns the shape s in every format of experts; the sizes of e2m1 experts are rounded to multiples of 32.
func expertKinds(s ExpertShape) []ExpertShape {
	bf16, folded := s, s
	bf16.BF16, folded.E2M1 = true, true
	folded.Hidden, folded.Inner = (s.Hidden+31)/32*32, (s.Inner+31)/32*32
	widened := folded
	widened.BF16 = true
	return []ExpertShape{s, bf16, folded, widened}
}

func newExperts(g *rig, shape ExpertShape) *expertRig {
	r := &expertRig{rig: g, shape: shape, rng: rand.New(rand.NewPCG(uint64(shape.Hidden), uint64(shape.Inner)))}
	a, b, c, d := shape.PackedBytes()
	n := int64(shape.Experts)
	r.packed = PackedExperts{GateUp: r.poisoned(n * a), GateUpScales: r.poisoned(n*b + 16), Down: r.poisoned(n * c),
		DownScales: r.poisoned(n*d + 16)}
	for e := range shape.Experts {
		gate, onGate := r.matrix(int(shape.Inner), int(shape.Hidden))
		up, onUp := r.matrix(int(shape.Inner), int(shape.Hidden))
		down, onDown := r.matrix(int(shape.Hidden), int(shape.Inner))
		check(r.t, PackExpert(r.k, r.s, shape, e, onGate, onUp, onDown, r.packed))
		r.gate, r.up, r.down = append(r.gate, gate), append(r.up, up), append(r.down, down)
	}
	return r
}

// batch holds rows and their chosen experts on the host.
type batch struct {
	x, out  []uint16
	ids     []int32
	weights []float32
	top     int
}

func (r *expertRig) batch(rows, top int) batch {
	h := int(r.shape.Hidden)
	b := batch{x: make([]uint16, rows*h), out: make([]uint16, rows*h), top: top}
	for i := range b.x {
		b.x[i], b.out[i] = num.BF16(float32(r.rng.NormFloat64())), num.BF16(float32(r.rng.NormFloat64()))
	}
	for range rows {
		for _, e := range r.rng.Perm(int(r.shape.Experts))[:top] {
			b.ids = append(b.ids, int32(e))
			b.weights = append(b.weights, float32(r.rng.NormFloat64()))
		}
	}
	return b
}

func (b batch) rows(from, to, hidden int) batch {
	return batch{x: b.x[from*hidden : to*hidden], out: b.out[from*hidden : to*hidden],
		ids: b.ids[from*b.top : to*b.top], weights: b.weights[from*b.top : to*b.top], top: b.top}
}

// run computes the experts of a batch and returns Out.
func (r *expertRig) run(b batch, limit float32, mode num.ScaleMode) ([]byte, ExpertsArgs) {
	r.t.Helper()
	rows, h := len(b.ids)/b.top, int64(r.shape.Hidden)
	faults := r.faultWord()
	x := Experts{Shape: r.shape, Packed: r.packed, X: upload(r.rig, b.x), Out: upload(r.rig, b.out),
		IDs: upload(r.rig, b.ids), Weights: upload(r.rig, b.weights), Faults: faults,
		Scratch: r.poisoned(r.shape.ScratchBytes(int32(rows), int32(b.top))),
		XStride: h, OutStride: h, IDStride: int64(b.top), WeightStride: int64(b.top),
		Rows: int32(rows), Top: int32(b.top), Limit: limit, Scales: mode}
	a, err := x.Encode()
	check(r.t, err)
	check(r.t, RunExperts(r.k, r.s, r.shape, &a))
	out := r.download(x.Out, 2*int64(rows)*h)
	if f := r.faults(faults); f != 0 {
		r.t.Errorf("fault %d", f)
	}
	return out, a
}

// expected returns the result of one expert for a row.
func (r *expertRig) expected(x []float32, e int32, limit float32, mode num.ScaleMode) []float64 {
	return expectedExpert(x, r.gate[e], r.up[e], r.down[e], !r.shape.BF16, limit, mode)
}

// want returns the expected output of one row.
func (r *expertRig) want(b batch, row int, limit float32, mode num.ScaleMode) []float64 {
	h := int(r.shape.Hidden)
	out := make([]float64, h)
	for i := range out {
		out[i] = float64(num.FromBF16(b.out[row*h+i]))
	}
	for j := range b.top {
		e := b.ids[row*b.top+j]
		if e < 0 || e >= r.shape.Experts {
			continue
		}
		for i, v := range r.expected(expect.Widen(b.x[row*h:][:h]), e, limit, mode) {
			out[i] += float64(b.weights[row*b.top+j]) * v
		}
	}
	return out
}

// compareRow checks that the relative L2 error of a row is at most 0.04.
func compareRow(t *testing.T, what string, got []byte, want []float64) {
	t.Helper()
	var off, size float64
	for i, w := range want {
		g := float64(num.FromBF16(binary.LittleEndian.Uint16(got[2*i:])))
		off += (g - w) * (g - w)
		size += w * w
	}
	// A sum that differs in its last bits may be quantised to the next code, which differs by 1/16. In short rows this
	// error is large.
	if !(math.Sqrt(off) <= 0.04*math.Sqrt(size)) {
		t.Errorf("%s: the relative L2 error is %.4f, want at most 0.04", what, math.Sqrt(off/size))
	}
}

func TestGPUExpertsEqualTheHost(t *testing.T) {
	g := onGPU(t)
	for _, shape := range []ExpertShape{{Experts: 5, Hidden: 208, Inner: 80}, {Experts: 3, Hidden: 256, Inner: 128},
		{Experts: 8, Hidden: 1040, Inner: 400}, {Experts: 4, Hidden: 16, Inner: 16}} {
		for _, shape := range expertKinds(shape) {
			r := newExperts(g, shape)
			for _, rows := range []int{1, 2, 9, 17, 33, 64, 65, 131, 300} {
				top := 1 + rows%int(shape.Experts)
				mode, limit := num.ScalePow2, float32(0)
				if rows%2 == 1 {
					mode, limit = num.ScaleF32, 1.5
				}
				b := r.batch(rows, top)
				if rows == 9 { // all rows choose one expert first, and one choice is missing
					for i := 0; i < len(b.ids); i += top {
						b.ids[i] = 1
					}
					b.ids[3*top] = -1
				}
				name := fmt.Sprintf("%+v rows %d top %d", shape, rows, top)
				out, a := r.run(b, limit, mode)
				order := r.download(a.Order, int64(4*len(b.ids)))
				for i, p := range expect.SortPairs(b.ids, shape.Experts) {
					if got := int32(binary.LittleEndian.Uint32(order[4*i:])); got != p {
						t.Fatalf("%s: place %d holds pair %d, want %d", name, i, got, p)
					}
				}
				h := int(shape.Hidden)
				for _, row := range []int{0, rows / 2, rows - 1} {
					compareRow(t, fmt.Sprintf("%s row %d", name, row), out[2*row*h:][:2*h], r.want(b, row, limit, mode))
				}
				// Results of a row are bitwise equal alone and in other batches.
				for row := 0; row < rows; row += 1 + rows/7 {
					alone, _ := r.run(b.rows(row, row+1, h), limit, mode)
					if !bytes.Equal(alone, out[2*row*h:][:2*h]) {
						t.Fatalf("%s: row %d differs from the row computed alone", name, row)
					}
				}
				if rows > 64 {
					part, _ := r.run(b.rows(rows-64, rows, h), limit, mode)
					if !bytes.Equal(part, out[2*(rows-64)*h:]) {
						t.Fatalf("%s: 64 rows computed without the other rows differ", name)
					}
				}
				again, _ := r.run(b, limit, mode)
				if !bytes.Equal(again, out) {
					t.Fatalf("%s: a second run gives a different result", name)
				}
			}
		}
	}
}

// Results equal those of the host with more than 255 experts, up to the limit, and with 16 chosen experts per row.
func TestGPUManyExpertsEqualTheHost(t *testing.T) {
	g := onGPU(t)
	for _, shape := range []ExpertShape{{Experts: 257, Hidden: 48, Inner: 16}, {Experts: 384, Hidden: 144, Inner: 160},
		{Experts: MaxExperts, Hidden: 32, Inner: 48}} {
		for _, shape := range expertKinds(shape) {
			r := newExperts(g, shape)
			h := int(shape.Hidden)
			for _, rows := range []int{1, 2, 5, 64, 65, 330} {
				top := 16
				if rows == 5 {
					top = 6
				}
				b := r.batch(rows, top)
				b.ids[0], b.ids[len(b.ids)-1] = shape.Experts-1, 0
				if rows == 330 { // the last expert has many rows, the others have few
					for i := 0; i < 200*top; i += top {
						b.ids[i] = shape.Experts - 1
					}
				}
				name := fmt.Sprintf("%+v rows %d top %d", shape, rows, top)
				out, a := r.run(b, 0, num.ScalePow2)
				order := r.download(a.Order, int64(4*len(b.ids)))
				for i, p := range expect.SortPairs(b.ids, shape.Experts) {
					if got := int32(binary.LittleEndian.Uint32(order[4*i:])); got != p {
						t.Fatalf("%s: place %d holds pair %d, want %d", name, i, got, p)
					}
				}
				for row := 0; row < rows; row += 1 + rows/5 {
					compareRow(t, fmt.Sprintf("%s row %d", name, row), out[2*row*h:][:2*h],
						r.want(b, row, 0, num.ScalePow2))
					alone, _ := r.run(b.rows(row, row+1, h), 0, num.ScalePow2)
					if !bytes.Equal(alone, out[2*row*h:][:2*h]) {
						t.Fatalf("%s: row %d differs from the row computed alone", name, row)
					}
				}
			}
		}
	}
}

// Routing in the launch that sorts the rows gives the choices, order and codes of two separate launches. The order is
// that of the host, whether rows of choices are adjacent or not.
func TestGPURoutedExpertsAreSortedInOneLaunch(t *testing.T) {
	g := onGPU(t)
	rng := rand.New(rand.NewPCG(4, 3))
	for _, experts := range []int32{16, 256, 384, MaxExperts} {
		shape := ExpertShape{Experts: experts, Hidden: 272, Inner: 16}
		for _, rows := range []int32{1, 2, 3, 17, 64, 100, 515} {
			top := min(6+rows%11, 16)
			wide := top + 1 - rows%2 // entries between rows of choices
			logits, bias := make([]float32, rows*experts), make([]float32, experts)
			for i := range logits {
				logits[i] = float32(rng.NormFloat64())
			}
			for i := range bias {
				bias[i] = float32(rng.NormFloat64()) / 8
			}
			x := upload(g, randomBF16(rng, int(rows*shape.Hidden)))
			var got [2][]byte
			for i := range got {
				ids, weights := g.poisoned(4*int64(rows*wide)), g.poisoned(4*int64(rows*top))
				scratch, faults := g.poisoned(shape.ScratchBytes(rows, top)), g.faultWord()
				e := Experts{Shape: shape, Packed: PackedExperts{x, x, x, x}, X: x, Out: x, IDs: ids, Weights: weights,
					Faults: faults, Scratch: scratch, XStride: int64(shape.Hidden), OutStride: int64(shape.Hidden),
					IDStride: int64(wide), WeightStride: int64(top), Rows: rows, Top: top}
				a, err := e.Encode()
				check(t, err)
				route := RouteArgs{Logits: upload(g, logits), Bias: upload(g, bias), IDs: ids, Weights: weights,
					Faults: faults, LogitStride: int64(experts), IDStride: int64(wide), WeightStride: int64(top),
					Rows: rows, Experts: experts, Top: top, Groups: 1, KeepGroups: 1, Normalize: 1, Scale: 1.5, Root: 1}
				if i == 0 {
					check(t, RouteExperts(g.k, g.s, &route))
					check(t, PrepareExperts(g.k, g.s, shape, &a))
				} else {
					check(t, RouteAndPrepare(g.k, g.s, shape, &RouteExpertsArgs{Route: route, Experts: a,
						Arrived: upload(g, []uint32{0, 0})}))
				}
				listed := binary.LittleEndian.Uint32(g.download(a.Totals, 16))
				for _, m := range []struct {
					at    Ptr
					bytes int64
				}{{ids, 4 * int64(rows*wide)}, {weights, 4 * int64(rows*top)}, {a.Order, 4 * int64(rows*top)},
					{a.Codes, int64(rows * shape.Hidden)}, {a.Totals, 12}, {a.List, 16 * int64(listed)}} {
					got[i] = append(got[i], g.download(m.at, m.bytes)...)
				}
				if f := g.faults(faults); f != 0 {
					t.Errorf("fault %d", f)
				}
			}
			var pairs []int32
			for i := range rows * top {
				at := 4 * (i/top*wide + i%top)
				pairs = append(pairs, int32(binary.LittleEndian.Uint32(got[1][at:])))
			}
			order := got[1][4*rows*(wide+top):]
			for i, p := range expect.SortPairs(pairs, experts) {
				if got := int32(binary.LittleEndian.Uint32(order[4*i:])); got != p {
					t.Fatalf("%d experts, %d rows of %d: place %d has pair %d, want %d", experts, rows, top, i, got, p)
				}
			}
			if !bytes.Equal(got[0], got[1]) {
				t.Errorf("%d experts, %d rows of %d: one launch and two launches differ", experts, rows, top)
			}
		}
	}
}

// At the width of a released model, sampled rows match the host, and a row is bitwise equal alone and in a batch of 300
// rows that share its experts.
func TestGPUExpertsOfRealWidth(t *testing.T) {
	g := onGPU(t)
	for _, shape := range expertKinds(ExpertShape{Experts: 2, Hidden: 7168, Inner: 2048}) {
		r := newExperts(g, shape)
		b := r.batch(300, 2)
		out, _ := r.run(b, 0, num.ScalePow2)
		for _, row := range []int{0, 130} {
			compareRow(t, fmt.Sprintf("%+v row %d", shape, row), out[2*row*7168:][:2*7168],
				r.want(b, row, 0, num.ScalePow2))
		}
		for _, part := range [][2]int{
			{0, 1}, {5, 13}, {130, 131}, {100, 120}, {200, 240}, {30, 94}, {100, 220}, {90, 290},
		} {
			got, _ := r.run(b.rows(part[0], part[1], 7168), 0, num.ScalePow2)
			if !bytes.Equal(got, out[2*part[0]*7168:][:len(got)]) {
				t.Errorf("%+v: rows %d to %d computed without the other rows differ", shape, part[0], part[1])
			}
		}
	}
}

func TestGPUExpertRowsAreQuantisedAsOnTheHost(t *testing.T) {
	g := onGPU(t)
	r := newExperts(g, ExpertShape{Experts: 2, Hidden: 336, Inner: 16})
	for _, mode := range []num.ScaleMode{num.ScalePow2, num.ScaleF32} {
		b := r.batch(11, 1)
		b.x = randomBF16(r.rng, len(b.x))
		clear(b.x[336 : 2*336])             // a row of zeros
		for i := range b.x[2*336 : 8*336] { // all finite values; the blocks of a row have different exponents
			b.x[2*336+i] = uint16(r.rng.Uint32()&0x807F | (r.rng.Uint32N(128)+uint32(i/112%128)*3)%255<<7)
		}
		copy(b.x[9*336:], []uint16{0x7F80, 0xFF80, 0x7FC1, 0xFFC1, 0x8000, 0x0001, 0x7F7F})
		_, a := r.run(b, 0, mode)
		codes, scales := r.download(a.Codes, 11*336), r.download(a.CodeScales, 11*3*4)
		want := make([]byte, 128)
		for row := range 11 {
			for block := range 3 {
				from, to := block*128, min(block*128+128, 336)
				s := num.QuantE4M3(want, expect.Widen(b.x[row*336+from:row*336+to]), mode)
				sameBytes(t, fmt.Sprintf("%v row %d block %d", mode, row, block), codes[row*336+from:row*336+to],
					want[:to-from])
				if got := math.Float32frombits(binary.LittleEndian.Uint32(scales[4*(row*3+block):])); got != s {
					t.Errorf("%v row %d block %d: scale %g, want %g", mode, row, block, got, s)
				}
			}
		}
	}
}

func TestGPUMissingExpertRaisesAFault(t *testing.T) {
	g := onGPU(t)
	r := newExperts(g, ExpertShape{Experts: 2, Hidden: 32, Inner: 32})
	b := r.batch(3, 2)
	b.ids[3] = 2
	faults := r.faultWord()
	x := Experts{Shape: r.shape, Packed: r.packed, X: upload(g, b.x), Out: upload(g, b.out), IDs: upload(g, b.ids),
		Weights: upload(g, b.weights), Faults: faults,
		Scratch: r.alloc(r.shape.ScratchBytes(3, 2)), XStride: 32, OutStride: 32, IDStride: 2, WeightStride: 2,
		Rows: 3, Top: 2}
	a, err := x.Encode()
	check(t, err)
	check(t, RunExperts(r.k, r.s, r.shape, &a))
	out := r.download(x.Out, 3*64)
	if f := r.faults(faults); f != FaultExpert {
		t.Errorf("faults %d, want %d", f, FaultExpert)
	}
	compareRow(t, "the row without its expert", out[64:128], r.want(b, 1, 0, 0))
}
