//go:build !purego

package vec

import (
	"math"
	"slices"
	"sync"
	"unsafe"
)

// panelWeights is a matrix of narrow weights that can fill panels.
type panelWeights struct {
	format panelFormat
	b      []byte
	ld     int // bytes between rows
	k      int
	scale  FP8Blocks // scales, for e4m3
}

type panelFormat int

const (
	panelBF16 panelFormat = iota
	panelFP8
)

// block returns the number of rows of a block that starts at a row: at most blockW, with scales, if the format has
// them, from one row of scales.
func (w *panelWeights) block(row, left int) int {
	rows := min(blockW, left)
	if w.format == panelFP8 {
		rows = min(rows, scaleBlock-(w.scale.Row0+row)%scaleBlock)
	}
	return rows
}

// folded reports whether all scales of a row are multiplied into the panel. That is exact only for powers of two;
// otherwise the sums of each block are scaled.
func (w *panelWeights) folded(row int) bool {
	return w.format != panelFP8 || !slices.ContainsFunc(w.scale.row(row)[:(w.k-1)/scaleBlock+1], notPowerOfTwo)
}

// bytes returns the number of bytes of n weights of a row.
func (w *panelWeights) bytes(n int) int {
	if w.format == panelBF16 {
		return 2 * n
	}
	return n
}

// fill copies columns [k, k+depth) of rows [row, row+rows) into the panel and prefetches the weights ts.fill.ahead
// bytes further on. Weights after depth are zero up to a whole step.
func (w *panelWeights) fill(ts *tileScratch, row, rows, k, depth int, folded bool) {
	a := &ts.fill
	a.ldw, a.rows = w.ld, rows
	switch w.format {
	case panelBF16:
		a.panel, a.w = at(ts.panel, 0), at(w.b, row*w.ld+w.bytes(k))
		a.steps, a.mask = depth/stepDepth, 1<<(depth%stepDepth)-1
		runKernel(fillBF16, a)
	case panelFP8:
		scales := w.scale.row(row)
		for from := 0; from < depth; from += scaleBlock {
			n := min(scaleBlock, depth-from)
			a.panel, a.w = at(ts.panel, from/stepDepth*panelStep), at(w.b, row*w.ld+k+from)
			power := 0
			if folded {
				power = math.Ilogb(float64(scales[(k+from)/scaleBlock]))
			}
			a.table = unsafe.Pointer(&tablesFP8()[power+maxPower])
			a.steps, a.mask = n/(2*stepDepth), 1<<(n%(2*stepDepth))-1
			runKernel(fillFP8, a)
		}
	}
	a.w = nil
}

// maxPower is the largest exponent, and -maxPower the smallest, of powers of two in a panel; see notPowerOfTwo.
const maxPower = 100

// tablesFP8 holds the low bytes and the high bytes of the value of every unsigned e4m3 code as bfloat16, times each
// power of two. Every entry is exact, and none is subnormal, because tiles treat subnormal numbers as zero.
var tablesFP8 = sync.OnceValue(func() *[2*maxPower + 1][2][128]byte {
	tables := new([2*maxPower + 1][2][128]byte)
	for i := range tables {
		for code := range 128 {
			bits := math.Float32bits(float32(math.Ldexp(float64(e4m3[code]), i-maxPower)))
			tables[i][0][code], tables[i][1][code] = byte(bits>>16), byte(bits>>24)
		}
	}
	return tables
})
