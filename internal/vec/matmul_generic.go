package vec

import "sparrow/internal/num"

// The portable products compute each element by one dot product, so the order of its sum is the order in that dot
// product.

func matMulF32Go(p product, w []float32) {
	for i := range p.m {
		x := p.x[i*p.ldx:][:p.k]
		y := p.y[i*p.ldy:][:p.n]
		for j := range y {
			y[j] = dotGo(x, w[j*p.ldw:][:p.k])
		}
	}
}

func matMulBF16Go(p product, w []byte) {
	buf := wideRows.get()
	defer wideRows.put(buf)
	row := sized(buf, p.k)
	for j := range p.n {
		widenBF16Go(row, w[2*j*p.ldw:][:2*p.k])
		p.column(j, row)
	}
}

func matMulF16Go(p product, w []byte) {
	buf := wideRows.get()
	defer wideRows.put(buf)
	row := sized(buf, p.k)
	for j := range p.n {
		widenF16Go(row, w[2*j*p.ldw:][:2*p.k])
		p.column(j, row)
	}
}

func matMulFP8Go(p product, w []byte, s FP8Blocks) {
	buf := wideRows.get()
	defer wideRows.put(buf)
	row := sized(buf, p.k)
	for j := range p.n {
		widenRowGo(row, w[j*p.ldw:][:p.k], s, j)
		p.column(j, row)
	}
}

func matMulFP4Go(p product, w, scale []byte, ldScale int) {
	buf := wideRows.get()
	defer wideRows.put(buf)
	row := sized(buf, p.k)
	for j := range p.n {
		for c, b := range w[j*p.ldw:][:p.k/2] {
			even, odd := num.UnpackE2M1(b)
			row[2*c], row[2*c+1] = num.FromE2M1(even), num.FromE2M1(odd)
		}
		for i := range p.m {
			x, sum := p.x[i*p.ldx:][:p.k], float32(0)
			for g, e := range scale[j*ldScale:][:(p.k+GroupFP4-1)/GroupFP4] {
				from, to := g*GroupFP4, min((g+1)*GroupFP4, p.k)
				sum += dotGo(x[from:to], row[from:to]) * num.FromE8M0(e)
			}
			p.y[i*p.ldy+j] = sum
		}
	}
}

// wideRows recycles widened rows of weights or queries between calls.
var wideRows recycler[[]float32]

// sized returns n elements of a recycled slice, which grows to the largest n.
func sized[T any](buf *[]T, n int) []T {
	if cap(*buf) < n {
		*buf = make([]T, n)
	}
	return (*buf)[:n]
}

// column writes y[:, j] from the widened row j of the weights.
func (p *product) column(j int, row []float32) {
	for i := range p.m {
		p.y[i*p.ldy+j] = dotGo(p.x[i*p.ldx:][:p.k], row)
	}
}

// dotGo keeps four running sums, one for each index modulo 4, and adds them pairwise. The elements after the last group
// of four are added last.
func dotGo(a, b []float32) float32 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float32
	for len(a) >= 4 && len(b) >= 4 {
		s0 += a[0] * b[0]
		s1 += a[1] * b[1]
		s2 += a[2] * b[2]
		s3 += a[3] * b[3]
		a, b = a[4:], b[4:]
	}
	sum := (s0 + s2) + (s1 + s3)
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

func accumulateF32Go(p product, w []float32) {
	for i := range p.m {
		y := p.y[i*p.ldy:][:p.n]
		for d, a := range p.x[i*p.ldx:][:p.k] {
			axpyGo(y, a, w[d*p.ldw:][:p.n])
		}
	}
}

func accumulateBF16Go(p product, w []byte) {
	buf := wideRows.get()
	defer wideRows.put(buf)
	row := sized(buf, p.n)
	for d := range p.k {
		widenBF16Go(row, w[2*d*p.ldw:][:2*p.n])
		p.addRow(d, row)
	}
}

func accumulateFP8Go(p product, w []byte, s FP8Blocks) {
	buf := wideRows.get()
	defer wideRows.put(buf)
	row := sized(buf, p.n)
	for d := range p.k {
		widenRowGo(row, w[d*p.ldw:][:p.n], s, d)
		p.addRow(d, row)
	}
}

// addRow adds x[:, d] times the widened row d of the weights to y.
func (p *product) addRow(d int, row []float32) {
	for i := range p.m {
		axpyGo(p.y[i*p.ldy:][:p.n], p.x[i*p.ldx+d], row)
	}
}
