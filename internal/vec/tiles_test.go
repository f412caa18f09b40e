package vec

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// tiledTier returns the tier with tile instructions, or skips the test if this machine has none.
func tiledTier(t testing.TB) *Tier {
	t.Helper()
	for _, tier := range Tiers() {
		if tier.Tiled() {
			return tier
		}
	}
	for _, m := range Missing() {
		t.Logf("%s: %v", m.Name, m.Reason)
	}
	t.Skip("no tier with tiles on this machine")
	return nil
}

// fourBit holds e2m1 weights with one scale for each 32 values.
type fourBit struct {
	codes, scales []byte
	wide          []float32 // values of the weights, [n, k]
}

// newFourBit returns random weights whose scales are taken from the given number of adjacent powers of two.
func newFourBit(r *rand.Rand, n, k, powers int) *fourBit {
	groups := (k + GroupFP4 - 1) / GroupFP4
	f := &fourBit{codes: make([]byte, n*k/2), scales: make([]byte, n*groups), wide: make([]float32, n*k)}
	for i := range f.codes {
		f.codes[i] = byte(r.Uint32())
	}
	for i := range f.scales {
		f.scales[i] = byte(118 + r.IntN(powers))
	}
	for j := range n {
		for c := range k {
			code := f.codes[(j*k+c)/2] >> (4 * (c % 2)) & 15
			v := [8]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}[code&7]
			if code > 7 {
				v = -v
			}
			f.wide[j*k+c] = v * float32(math.Ldexp(1, int(f.scales[j*groups+c/GroupFP4])-127))
		}
	}
	return f
}

// packed packs the rows of x for the tier.
func packed(tier *Tier, o Order, x []float32, ldx, m, k int) *Columns {
	c := new(Columns)
	c.Reset(m, k, o)
	for i := range c.Chunks() {
		tier.PackChunk(c, i, x, ldx)
	}
	return c
}

func packedBF16(tier *Tier, o Order, x []byte, ldx, m, k int) *Columns {
	c := new(Columns)
	c.ResetBF16(m, k, o)
	for i := range c.Chunks() {
		tier.PackChunkBF16(c, i, x, ldx)
	}
	return c
}

// wantSums compares y [m, n] with float64 sums of x by w within relative times
// the sum of magnitudes.
func wantSums(t *testing.T, what string, y, x []float32, ldx, m int, w []float32, ldw, n, k int, relative float64) {
	t.Helper()
	for i := range m {
		for j := range n {
			var sum, size float64
			for c := range k {
				v := float64(x[i*ldx+c]) * float64(w[j*ldw+c])
				sum += v
				size += math.Abs(v)
			}
			if got := float64(y[i*n+j]); !(math.Abs(got-sum) <= size*relative) {
				t.Fatalf("%s [%d,%d,%d]: y[%d][%d] = %v, want %v within %v", what, m, n, k, i, j, got, sum,
					size*relative)
			}
		}
	}
}

// inPlanes returns the rows of x as tiles multiply them by e2m1 weights: rounded to multiples of a power of two. The
// power is the smallest for which the largest number of a row fits two signed digits of eight bits.
func inPlanes(x []float32, ldx, m, k int) []float32 {
	out := make([]float32, len(x))
	for i := range m {
		peak := 0.0
		for _, v := range x[i*ldx:][:k] {
			peak = max(peak, math.Abs(float64(v)))
		}
		if peak == 0 {
			continue
		}
		_, e := math.Frexp(peak)
		if math.Ldexp(peak, 15-e) > 0x7F7F {
			e++
		}
		for c, v := range x[i*ldx:][:k] {
			out[i*ldx+c] = float32(math.Ldexp(math.RoundToEven(math.Ldexp(float64(v), 15-e)), e-15))
		}
	}
	return out
}

// Tiled products match sums in float64, for every number of tiles along rows and columns, full and partial tiles, and
// every remainder of k.
func TestTiledProductsMatchFloat64Sums(t *testing.T) {
	tier := tiledTier(t)
	r := newRand(21)
	for _, s := range [][3]int{
		{1, 1, 2}, {1, 15, 32}, {1, 33, 96}, {2, 16, 34}, {8, 17, 64}, {9, 31, 100}, {15, 32, 126}, {16, 33, 128},
		{17, 48, 130}, {33, 47, 512}, {31, 130, 514}, {70, 161, 640}, {300, 40, 1100},
	} {
		m, n, k := s[0], s[1], s[2]
		a := newMatrix(r, m, n, k, 2, 97)
		summing := float64(k/8+8) * 0x1p-24
		rounding := summing + 0x1p-17 // rounding of x to two parts
		y := make([]float32, m*n)
		cut := Cut{Y: y, Ldy: n, X: packed(tier, InOrder, a.x, a.ldx, m, k), M1: m, N: n}
		tier.TiledBF16(cut, a.bf16, a.ldw)
		wantSums(t, "bf16", y, a.x, a.ldx, m, a.w[testBF16], a.ldw, n, k, rounding)
		cut.X = packed(tier, Halves, a.x, a.ldx, m, k)
		for range 2 {
			tier.TiledFP8(cut, a.fp8, a.ldw, a.scale, a.ldScale, a.row0)
			wantSums(t, "fp8", y, a.x, a.ldx, m, a.w[testFP8], a.ldw, n, k, rounding)
			a.withPowerScales()
		}
		cut.X = packed(tier, Nibbles, a.x, a.ldx, m, k)
		integers := inPlanes(a.x, a.ldx, m, k)
		for _, powers := range []int{1, 4, 5, 16} {
			f := newFourBit(r, n, k, powers)
			tier.TiledFP4(cut, f.codes, k/2, f.scales, (k+GroupFP4-1)/GroupFP4)
			wantSums(t, "fp4", y, integers, a.ldx, m, f.wide, k, n, k, summing)
		}

		// Values that are exact in bfloat16 are multiplied unchanged.
		xs := narrow(a.x)
		wide := make([]float32, len(a.x))
		widenBF16Go(wide, xs)
		cut.X = packedBF16(tier, InOrder, xs, a.ldx, m, k)
		tier.TiledBF16(cut, a.bf16, a.ldw)
		wantSums(t, "bf16 by bf16", y, wide, a.ldx, m, a.w[testBF16], a.ldw, n, k, summing)
		cut.X = packedBF16(tier, Halves, xs, a.ldx, m, k)
		tier.TiledFP8(cut, a.fp8, a.ldw, a.scale, a.ldScale, a.row0)
		wantSums(t, "bf16 by fp8", y, wide, a.ldx, m, a.w[testFP8], a.ldw, n, k, summing)
	}
}

// A float32 number of any magnitude keeps 17 bits, in groups of every size, and a bfloat16 number keeps all of its
// bits.
func TestTiledPrecision(t *testing.T) {
	tier := tiledTier(t)
	const k = 64
	r := newRand(27)
	w := make([]float32, k*k)
	for i := range k {
		w[i*k+i] = 1
	}
	for _, m := range []int{1, 3, 7, 16, 40} {
		x := make([]float32, m*k)
		for i := range x {
			x[i] = float32(math.Ldexp(2*r.Float64()-1, r.IntN(160)-80))
			if i%3 == 0 {
				x[i] = math.Float32frombits(math.Float32bits(x[i]) &^ 0xFFFF)
			}
		}
		y := make([]float32, m*k)
		tier.TiledBF16(Cut{Y: y, Ldy: k, X: packed(tier, InOrder, x, k, m, k), M1: m, N: k}, narrow(w), k)
		for i, v := range x {
			bound := 0x1p-17 * math.Abs(float64(v))
			if i%3 == 0 {
				bound = 0
			}
			if got := y[i]; !(math.Abs(float64(got)-float64(v)) <= bound) {
				t.Fatalf("%d rows: %v came out as %v", m, v, got)
			}
		}
	}
}

// A row is bitwise equal alone, in a small batch that reads weights in place, in larger blocks that read panels, and in
// any part of these blocks. This includes rows of a block that are all exact in bfloat16.
func TestTiledRowsAreIndependent(t *testing.T) {
	tier := tiledTier(t)
	const rows, cols, k = 300, 150, 1090
	for i := range 4 {
		powers, held := i%2 == 0, i/2 == 0
		a := newMatrix(newRand(22), rows, cols, k, 0, 64)
		if powers {
			a.withPowerScales()
		}
		if held {
			widenBF16Go(a.x, narrow(a.x))
		}
		f := newFourBit(newRand(23), cols, k, 5)
		groups := (k + GroupFP4 - 1) / GroupFP4
		formats := map[string]func(c Cut, j int){
			"bf16": func(c Cut, j int) { tier.TiledBF16(c, a.bf16[2*j*a.ldw:], a.ldw) },
			"fp8":  func(c Cut, j int) { tier.TiledFP8(c, a.fp8[j*a.ldw:], a.ldw, a.scale, a.ldScale, a.row0+j) },
			"fp4":  func(c Cut, j int) { tier.TiledFP4(c, f.codes[j*k/2:], k/2, f.scales[j*groups:], groups) },
		}
		for name, run := range formats {
			order := map[string]Order{"fp8": Halves, "fp4": Nibbles}[name]
			all := packed(tier, order, a.x, a.ldx, rows, k)
			if all.single(new(Columns), 0, rows) != (held && order != Nibbles) {
				t.Errorf("%s: bfloat16 holds rows: %v", name, !held)
			}
			whole := make([]float32, rows*cols)
			run(Cut{Y: whole, Ldy: cols, X: all, M1: rows, N: cols}, 0)
			for _, part := range [][4]int{{0, 1, 0, 1}, {299, 300, 149, 150}, {3, 4, 7, 60}, {8, 10, 0, 150},
				{9, 12, 3, 99}, {20, 24, 64, 150}, {5, 20, 1, 40}, {7, 23, 64, 97}, {11, 28, 30, 150}, {31, 78, 2, 150},
				{100, 133, 0, 150}} {
				m0, m1, n0, n1 := part[0], part[1], part[2], part[3]
				n := n1 - n0
				got := make([]float32, (m1-m0)*n)
				run(Cut{Y: got, Ldy: n, X: packed(tier, order, a.x[m0*a.ldx:], a.ldx, m1-m0, k), M1: m1 - m0, N: n}, n0)
				for r := range m1 - m0 {
					wantSame(t, fmt.Sprintf("%s part %v row %d", name, part, r), got[r*n:][:n],
						whole[(m0+r)*cols+n0:][:n])
				}
			}
			// The product uses only some of the columns that were packed together.
			got := make([]float32, 40*cols)
			run(Cut{Y: got, Ldy: cols, X: all, M0: 16, M1: 56, N: cols}, 0)
			wantSame(t, name+" cut", got, whole[16*cols:56*cols])
		}
	}
}

// Sums that are longer than one call of the streaming kernel are continued correctly, for every number of rows that the
// kernel supports.
func TestTiledLongSums(t *testing.T) {
	tier := tiledTier(t)
	const rows, cols, k = 18, 32 + 128 + 65, 8192 + 300
	a := newMatrix(newRand(26), rows, cols, k, 0, 96)
	for range 2 {
		whole := make([]float32, rows*cols)
		tier.TiledFP8(Cut{Y: whole, Ldy: cols, X: packed(tier, Halves, a.x, a.ldx, rows, k), M1: rows, N: cols}, a.fp8,
			a.ldw, a.scale, a.ldScale, a.row0)
		for _, m := range []int{1, 2, 4, 16} {
			part := make([]float32, m*cols)
			tier.TiledFP8(Cut{Y: part, Ldy: cols, X: packed(tier, Halves, a.x, a.ldx, m, k), M1: m, N: cols}, a.fp8,
				a.ldw, a.scale, a.ldScale, a.row0)
			wantSame(t, fmt.Sprintf("%d rows", m), part, whole[:m*cols])
		}
		a.withPowerScales()
	}
}

// Products with short rows without gaps, which are read in another order, are bitwise equal to products with other
// rows.
func TestTiledShortRows(t *testing.T) {
	tier := tiledTier(t)
	for _, s := range [][2]int{{32, 64}, {64, 63}, {96, 70}, {512, 545}, {1024, 1100}, {2016, 200}} {
		k, n := s[0], s[1]
		for _, m := range []int{1, 3, 7, 16} {
			a := newMatrix(newRand(28), m, n, k, 0, 0)
			gaps := make([]byte, 2*n*(k+32))
			for j := range n {
				copy(gaps[2*j*(k+32):], a.bf16[2*j*a.ldw:][:2*k])
			}
			dense := make([]byte, 2*n*k)
			for j := range n {
				copy(dense[2*j*k:], a.bf16[2*j*a.ldw:][:2*k])
			}
			x := packed(tier, InOrder, a.x, a.ldx, m, k)
			for _, add := range []bool{false, true} {
				want, got := make([]float32, m*n), make([]float32, m*n+1)
				for i := range want {
					want[i], got[i] = float32(i), float32(i)
				}
				tier.TiledBF16(Cut{Y: want, Ldy: n, X: x, M1: m, N: n, Add: add}, gaps, k+32)
				tier.TiledBF16(Cut{Y: got, Ldy: n, X: x, M1: m, N: n, Add: add}, dense, k)
				wantSame(t, fmt.Sprintf("%d rows by %d of %d, add %v", m, n, k, add), got[:m*n], want)
				if got[m*n] != 0 {
					t.Errorf("%d rows by %d of %d: wrote past the end", m, n, k)
				}
			}
		}
	}
}

func TestTiledProductsAdd(t *testing.T) {
	tier := tiledTier(t)
	for _, m := range []int{1, 2, 7, 40} {
		const n, k = 37, 96
		a := newMatrix(newRand(24), m, n, k, 0, 0)
		cols := packed(tier, InOrder, a.x, a.ldx, m, k)
		plain, added := make([]float32, m*n), make([]float32, m*n)
		for i := range added {
			added[i] = float32(i)
		}
		tier.TiledBF16(Cut{Y: plain, Ldy: n, X: cols, M1: m, N: n}, a.bf16, a.ldw)
		tier.TiledBF16(Cut{Y: added, Ldy: n, X: cols, M1: m, N: n, Add: true}, a.bf16, a.ldw)
		for i := range plain {
			plain[i] += float32(i)
		}
		wantSame(t, fmt.Sprintf("%d rows", m), added, plain)
	}
}

// Numbers at the upper end of the range keep their magnitude, infinities and NaN are preserved, and none of them
// affects another row.
func TestTiledExtremes(t *testing.T) {
	tier := tiledTier(t)
	const k = 40
	nan := float32(math.NaN())
	for _, m := range []int{1, 3, 5, 20} {
		x := make([]float32, m*k)
		for _, v := range []float32{math.MaxFloat32, -math.MaxFloat32, inf, -inf, nan, math.Float32frombits(0x7F800001),
			math.Float32frombits(0xFFFFFFFF)} {
			clear(x)
			x[(m-1)*k+33] = v
			y := make([]float32, m)
			w := make([]float32, k)
			w[33] = 0.5
			tier.MatMulBF16(y, 1, x, k, m, narrow(w), k, 1, k)
			want := v / 2
			if got := y[m-1]; !(same(got, want) || math.Abs(float64(got/want)-1) < 0x1p-8) {
				t.Errorf("%d rows: %v * 0.5 = %v", m, v, got)
			}
			for _, other := range y[:m-1] {
				if other != 0 {
					t.Errorf("%d rows: %v reached another row as %v", m, v, other)
				}
			}
		}
	}
}

// Rows for e2m1 weights are integers times a power of two: they are rounded by at most 2^-15 of the largest value,
// and integers of 14 bits are exact for any power. Sums below 2^24 are exact.
func TestTiledFP4Precision(t *testing.T) {
	tier := tiledTier(t)
	r := newRand(41)
	const n, k = 70, 128 + 96
	f := newFourBit(r, n, k, 6)
	for _, m := range []int{1, 3, 4, 5, 8, 16, 40} {
		for _, power := range []int{-120, -20, 0, 90} {
			x, whole := make([]float32, m*k), make([]float32, m*k)
			for i := range x {
				x[i] = float32(math.Ldexp(2*r.Float64()-1, power-r.IntN(30)))
				whole[i] = float32(math.Ldexp(float64(r.IntN(1<<15)-1<<14), power))
			}
			y := make([]float32, m*n)
			multiply := func(x []float32) {
				tier.TiledFP4(Cut{Y: y, Ldy: n, X: packed(tier, Nibbles, x, k, m, k), M1: m, N: n}, f.codes, k/2,
					f.scales, k/GroupFP4)
			}
			multiply(x)
			for i := range m {
				peak := 0.0
				for _, v := range x[i*k:][:k] {
					peak = max(peak, math.Abs(float64(v)))
				}
				for j := range n {
					sum, size, weights := 0.0, 0.0, 0.0
					for c, w := range f.wide[j*k:][:k] {
						v := float64(x[i*k+c]) * float64(w)
						sum, size, weights = sum+v, size+math.Abs(v), weights+math.Abs(float64(w))
					}
					bound := peak*weights*0x1p-15 + size*0x1p-21
					if got := float64(y[i*n+j]); !(math.Abs(got-sum) <= bound) {
						t.Fatalf("%d rows, 2^%d: y[%d][%d] = %v, want %v within %v", m, power, i, j, got, sum, bound)
					}
				}
			}
			// Each row has a single nonzero element, so that the sum is one product.
			clear(x)
			for i := range m {
				x[i*k+7*i%k] = whole[i*k]
			}
			multiply(x)
			for i := range m {
				for j := range n {
					want := float64(whole[i*k]) * float64(f.wide[j*k+7*i%k])
					if got := y[i*n+j]; float64(got) != float64(float32(want)) {
						t.Fatalf("%d rows, 2^%d: %v times a weight is %v, want %v", m, power, whole[i*k], got, want)
					}
				}
			}
		}
	}
}

// A NaN or infinity makes all sums of its row NaN and does not change other rows.
func TestTiledFP4NaN(t *testing.T) {
	tier := tiledTier(t)
	const n, k = 64, 256
	f := newFourBit(newRand(42), n, k, 4)
	for _, m := range []int{1, 3, 20} {
		for _, v := range []float32{inf, -inf, float32(math.NaN())} {
			x := normals(newRand(43), m*k)
			x[(m-1)*k+200] = v
			y := make([]float32, m*n)
			tier.TiledFP4(Cut{Y: y, Ldy: n, X: packed(tier, Nibbles, x, k, m, k), M1: m, N: n}, f.codes, k/2, f.scales,
				k/GroupFP4)
			for i, got := range y {
				if isNaN := got != got; isNaN != (i/n == m-1) {
					t.Fatalf("%d rows with %v in the last: y[%d][%d] = %v", m, v, i/n, i%n, got)
				}
			}
		}
	}
}

// The longest rows with the largest weights and the largest numbers have exact sums, which are bitwise equal for a row
// alone and in a batch.
func TestTiledFP4LargestSums(t *testing.T) {
	tier := tiledTier(t)
	const n, k, m = 16, MostFP4, 4
	codes, scales := bytes.Repeat([]byte{0x77}, n*k/2), bytes.Repeat([]byte{127}, n*k/GroupFP4)
	copy(codes[k/2:], bytes.Repeat([]byte{0xFF}, k/2)) // row 1 has only -6
	x := make([]float32, m*k)
	for i := range x {
		x[i] = []float32{0x7F7F, -0x7F7F, 0x7F00, -0x7F}[i/k] // the largest integers, and the largest of each digit
	}
	for _, rows := range []int{1, m} {
		for first := 0; first < m; first += rows {
			y := make([]float32, rows*n)
			tier.TiledFP4(Cut{Y: y, Ldy: n, X: packed(tier, Nibbles, x[first*k:], k, rows, k), M1: rows, N: n}, codes,
				k/2, scales, k/GroupFP4)
			for i, got := range y {
				want := 6 * float32(x[(first+i/n)*k]) * k
				if i%n == 1 {
					want = -want
				}
				if got != want {
					t.Fatalf("%d rows, row %d: weight row %d gives %v, want %v", rows, first+i/n, i%n, got, want)
				}
			}
		}
	}
}

// Rows that are too long for integer sums are multiplied by another method, with the same precision.
func TestLongRowsFP4(t *testing.T) {
	tier := tiledTier(t)
	const n, k = 2, MostFP4 + 64
	f := newFourBit(newRand(44), n, k, 3)
	x, y := normals(newRand(45), k), make([]float32, n)
	tier.MatMulFP4(y, n, x, k, 1, f.codes, k/2, n, k, f.scales, k/GroupFP4)
	wantSums(t, "long rows", y, x, k, 1, f.wide, k, n, k, float64(k/8)*0x1p-24)
}

// Products with scales at both ends of the range are exact, and a NaN scale gives NaN.
func TestTiledFP4ExtremeScales(t *testing.T) {
	tier := tiledTier(t)
	const n, k = 40, 608
	groups := k / GroupFP4
	for _, e := range []byte{0, 1, 2, 3, 126, 251, 252, 253, 254, 255} {
		f := newFourBit(newRand(25), n, k, 1)
		for i := range f.codes {
			f.codes[i] = 0x22 // all weights are 1
		}
		for i := range f.scales {
			f.scales[i] = 127
		}
		f.scales[7*groups+5] = e
		x := make([]float32, k)
		small := e < 127
		if small {
			x[5*GroupFP4] = 0x1p100
		} else {
			x[5*GroupFP4] = 0x1p-100
		}
		y := make([]float32, n)
		tier.TiledFP4(Cut{Y: y, Ldy: n, X: packed(tier, Nibbles, x, k, 1, k), M1: 1, N: n}, f.codes, k/2, f.scales,
			groups)
		want := math.Ldexp(float64(x[5*GroupFP4]), int(e)-127)
		switch got := float64(y[7]); {
		case e == 255:
			if got == got {
				t.Errorf("NaN scale gave %v", got)
			}
		case got != want:
			t.Errorf("scale %d: %v, want %v", e, got, want)
		}
		if y[8] != x[5*GroupFP4] {
			t.Errorf("scale %d reached the next row: %v", e, y[8])
		}
	}
}

func TestTiledChecksItsArguments(t *testing.T) {
	tier := tiledTier(t)
	cols := packed(tier, InOrder, make([]float32, 20*64), 64, 20, 64)
	apart := packed(tier, Nibbles, make([]float32, 20*64), 64, 20, 64)
	y, w := make([]float32, 20*8), make([]byte, 2*8*64)
	for name, call := range map[string]func(){
		"cut within a group": func() { tier.TiledBF16(Cut{Y: y, Ldy: 8, X: cols, M0: 3, M1: 9, N: 8}, w, 64) },
		"cut past the end":   func() { tier.TiledBF16(Cut{Y: y, Ldy: 8, X: cols, M0: 16, M1: 21, N: 8}, w, 64) },
		"short weights":      func() { tier.TiledBF16(Cut{Y: y, Ldy: 8, X: cols, M1: 20, N: 8}, w[2:], 64) },
		"short y":            func() { tier.TiledBF16(Cut{Y: y[1:], Ldy: 8, X: cols, M1: 20, N: 8}, w, 64) },
		"other type":         func() { tier.PackChunkBF16(cols, 0, make([]byte, 2*20*64), 64) },
		"piece":              func() { tier.PackChunk(cols, 3, make([]float32, 20*64), 64) },
		"untiled tier":       func() { portable.TiledBF16(Cut{Y: y, Ldy: 8, X: cols, M1: 20, N: 8}, w, 64) },
		"other order": func() {
			tier.TiledFP8(Cut{Y: y, Ldy: 8, X: cols, M1: 20, N: 8}, w, 64, make([]float32, 1), 1, 0)
		},
		"short scales": func() { tier.TiledFP4(Cut{Y: y, Ldy: 8, X: apart, M1: 20, N: 8}, w, 32, w[:15], 2) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
}
