//go:build !purego

package vec

import "unsafe"

// The structs below are the arguments of kernels. The assembly reads the fields by their generated offsets.

// neonArgs are the arguments of kernels that multiply up to four rows of x by up to eight weight rows. If there are
// fewer rows, the last one is repeated.
type neonArgs struct {
	y     [16]float32       // output: [8] for one row of x, [4, 4] for four
	x     [4]unsafe.Pointer // float32
	w     [8]unsafe.Pointer // in the kernel's format
	steps int               // steps of 8 values
	tail  int               // 1 if fewer than 8 values follow the steps
	xTail [4][neonStep]float32
	wTail [8][neonStep]float32
}

// neonSumArgs are the arguments of kernels that add the products of one row of x and d weight rows to sixteen columns
// of y.
type neonSumArgs struct {
	y, x, w unsafe.Pointer
	ldw     int // bytes between rows of weights
	d       int
}

const (
	neonStep    = 8  // values that a step takes
	neonColumns = 16 // columns of neonSumArgs
	// Rows of weights that one call of an accumulating kernel processes: a few microseconds.
	neonDepth = 2048
)

//go:noescape
func neonF321x8(a *neonArgs)

//go:noescape
func neonBF161x8(a *neonArgs)

//go:noescape
func neonF161x8(a *neonArgs)

//go:noescape
func neonF324x4(a *neonArgs)

//go:noescape
func neonBF164x4(a *neonArgs)

//go:noescape
func neonF164x4(a *neonArgs)

//go:noescape
func neonF321x1(a *neonArgs)

//go:noescape
func neonSumF32(a *neonSumArgs)

//go:noescape
func neonSumBF16(a *neonSumArgs)

// neonScratch is the memory of one call. Kernels are called through function values, so their arguments would otherwise
// be allocated on the heap.
type neonScratch struct {
	rows   neonArgs
	sum    neonSumArgs
	blocks neonBlockArgs
	one    [1]float32 // factor of a single row
	wide   []float32  // widened weights
}

var neonScratches recycler[neonScratch]

// releaseNEON drops the pointers into the caller's memory and returns s.
func releaseNEON(s *neonScratch) {
	s.rows.x, s.rows.w = [4]unsafe.Pointer{}, [8]unsafe.Pointer{}
	s.sum, s.blocks = neonSumArgs{}, neonBlockArgs{}
	neonScratches.put(s)
}

// neonWeights are weight rows in one format and the kernels for that format.
type neonWeights struct {
	at       func(row, col int) unsafe.Pointer
	widen    func(to []float32, row, col int) // writes len(to) values
	one, all func(*neonArgs)                  // one row of x by eight weight rows; four by four
}

func neonF32(w []float32, ld int) neonWeights {
	return neonWeights{one: neonF321x8, all: neonF324x4,
		at:    func(row, col int) unsafe.Pointer { return at(w, row*ld+col) },
		widen: func(to []float32, row, col int) { copy(to, w[row*ld+col:]) }}
}

func neonMatMulF32(p product, w []float32) {
	s := neonScratches.get()
	defer releaseNEON(s)
	s.matMul(&p, neonF32(w, p.ldw))
}

func neonMatMulBF16(p product, w []byte) {
	s := neonScratches.get()
	defer releaseNEON(s)
	s.matMul(&p, neonWeights{one: neonBF161x8, all: neonBF164x4,
		at:    func(row, col int) unsafe.Pointer { return at(w, 2*(row*p.ldw+col)) },
		widen: func(to []float32, row, col int) { widenBF16Go(to, w[2*(row*p.ldw+col):]) }})
}

func neonMatMulF16(p product, w []byte) {
	s := neonScratches.get()
	defer releaseNEON(s)
	s.matMul(&p, neonWeights{one: neonF161x8, all: neonF164x4,
		at:    func(row, col int) unsafe.Pointer { return at(w, 2*(row*p.ldw+col)) },
		widen: func(to []float32, row, col int) { widenF16Go(to, w[2*(row*p.ldw+col):]) }})
}

// neonBand is the number of weight rows that are widened at a time if their format has no kernel.
const neonBand = 32

// neonMatMulFP8 multiplies by e4m3 weights. It widens them in bands, to the values of plain Go.
func neonMatMulFP8(p product, w []byte, scale FP8Blocks) {
	s := neonScratches.get()
	defer releaseNEON(s)
	wide := sized(&s.wide, neonBand*p.k)
	for j := 0; j < p.n; j += neonBand {
		cut := p
		cut.y, cut.n = p.y[j:], min(neonBand, p.n-j)
		for r := range cut.n {
			widenRowGo(wide[r*p.k:][:p.k], w[(j+r)*p.ldw:][:p.k], scale, j+r)
		}
		s.matMul(&cut, neonF32(wide, p.k))
	}
}

// matMul multiplies by four weight rows at a time if x has several rows, otherwise by eight.
func (s *neonScratch) matMul(p *product, w neonWeights) {
	if p.m == 1 {
		for j := 0; j < p.n; j += 8 {
			n := min(8, p.n-j)
			s.point(p, w, 0, 1, 1, j, n, 8)
			runKernel(w.one, &s.rows)
			copy(p.y[j:][:n], s.rows.y[:])
		}
		return
	}
	for j := 0; j < p.n; j += 4 {
		n := min(4, p.n-j)
		for i := 0; i < p.m; i += 4 {
			m := min(4, p.m-i)
			s.point(p, w, i, m, 4, j, n, 4)
			runKernel(w.all, &s.rows)
			for r := range m {
				copy(p.y[(i+r)*p.ldy+j:][:n], s.rows.y[4*r:])
			}
		}
	}
}

// point sets the arguments to m rows of x, starting at row i, and n weight rows, starting at row j. A kernel takes mMax
// and nMax rows.
func (s *neonScratch) point(p *product, w neonWeights, i, m, mMax, j, n, nMax int) {
	a := &s.rows
	a.steps, a.tail = p.k/neonStep, 0
	whole := a.steps * neonStep
	tail := p.k - whole
	if tail > 0 {
		a.tail = 1
	}
	for r := range mMax {
		row := (i + min(r, m-1)) * p.ldx
		a.x[r] = at(p.x, row)
		if tail > 0 {
			a.xTail[r] = [neonStep]float32{}
			copy(a.xTail[r][:tail], p.x[row+whole:])
		}
	}
	for r := range nMax {
		row := j + min(r, n-1)
		a.w[r] = w.at(row, 0)
		if tail > 0 {
			a.wTail[r] = [neonStep]float32{}
			w.widen(a.wTail[r][:tail], row, whole)
		}
	}
}

func neonDot(x, w []float32) float32 {
	s := neonScratches.get()
	defer releaseNEON(s)
	p := product{x: x, k: len(x)}
	s.point(&p, neonF32(w, 0), 0, 1, 1, 0, 1, 1)
	runKernel(neonF321x1, &s.rows)
	return s.rows.y[0]
}

func neonAxpy(y []float32, a float32, x []float32) {
	s := neonScratches.get()
	defer releaseNEON(s)
	s.one[0] = a
	p := product{y: y, x: s.one[:], m: 1, n: len(y), k: 1}
	s.accumulateF32(&p, x)
}

func neonAccumulateF32(p product, w []float32) {
	s := neonScratches.get()
	defer releaseNEON(s)
	s.accumulateF32(&p, w)
}

func (s *neonScratch) accumulateF32(p *product, w []float32) {
	s.accumulate(p, neonSumF32, 4, func(d, c int) unsafe.Pointer { return at(w, d*p.ldw+c) },
		func(d, c int) float32 { return w[d*p.ldw+c] })
}

func neonAccumulateBF16(p product, w []byte) {
	s := neonScratches.get()
	defer releaseNEON(s)
	s.accumulate(&p, neonSumBF16, 2, func(d, c int) unsafe.Pointer { return at(w, 2*(d*p.ldw+c)) },
		func(d, c int) float32 {
			var v [1]float32
			widenBF16Go(v[:], w[2*(d*p.ldw+c):])
			return v[0]
		})
}

// neonAccumulateFP8 accumulates e4m3 weights, which it widens in bands.
func neonAccumulateFP8(p product, w []byte, scale FP8Blocks) {
	s := neonScratches.get()
	defer releaseNEON(s)
	wide := sized(&s.wide, neonBand*p.n)
	for d := 0; d < p.k; d += neonBand {
		cut := p
		cut.x, cut.k, cut.ldw = p.x[d:], min(neonBand, p.k-d), p.n
		for r := range cut.k {
			widenRowGo(wide[r*p.n:][:p.n], w[(d+r)*p.ldw:][:p.n], scale, d+r)
		}
		s.accumulateF32(&cut, wide)
	}
}

// accumulate adds sixteen columns at a time with the kernel, and the last columns one at a time with the rounding of
// the kernel.
func (s *neonScratch) accumulate(p *product, kernel func(*neonSumArgs), size int, at func(d, c int) unsafe.Pointer,
	value func(d, c int) float32) {
	whole := p.n / neonColumns * neonColumns
	for i := range p.m {
		x, y := p.x[i*p.ldx:][:p.k], p.y[i*p.ldy:][:p.n]
		for c := 0; c < whole; c += neonColumns {
			for d := 0; d < p.k; d += neonDepth {
				s.sum = neonSumArgs{y: unsafe.Pointer(&y[c]), x: unsafe.Pointer(&x[d]), w: at(d, c), ldw: size * p.ldw,
					d: min(neonDepth, p.k-d)}
				runKernel(kernel, &s.sum)
			}
		}
		for c := whole; c < p.n; c++ {
			for d, v := range x {
				y[c] = fma32(v, value(d, c), y[c])
			}
		}
	}
}
