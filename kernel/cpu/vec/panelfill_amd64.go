//go:build !purego

package vec

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"unsafe"

	"sparrow/internal/num"
)

// panelWeights is a matrix of narrow weights that can fill panels.
type panelWeights struct {
	format  panelFormat
	b       []byte
	ld      int // bytes between rows
	k       int
	scale   blockScale // e4m3
	scales  []byte     // e2m1
	ldScale int
}

type panelFormat int

const (
	panelBF16 panelFormat = iota
	panelFP8
	panelFP4
)

// block returns how many rows from row on make a block: their scales, where
// they have any, are in one line.
func (w *panelWeights) block(row, left int) int {
	rows := min(blockW, left)
	if w.format == panelFP8 {
		rows = min(rows, scaleBlock-(w.scale.row0+row)%scaleBlock)
	}
	return rows
}

// folded reports whether the scales of a row, all of them, are in the panel.
// That is exact only for powers of two; others scale the sums of their block.
func (w *panelWeights) folded(row int) bool {
	return w.format != panelFP8 || !slices.ContainsFunc(w.scale.row(row)[:(w.k-1)/scaleBlock+1], notPowerOfTwo)
}

// bytes is the size of n weights of a row.
func (w *panelWeights) bytes(n int) int {
	switch w.format {
	case panelBF16:
		return 2 * n
	case panelFP4:
		return n / 2
	default:
		return n
	}
}

// fill copies columns [k, k+depth) of rows [row, row+rows) into the panel and
// prefetches the weights ts.fill.ahead bytes further on. Weights past the depth are
// zero up to a whole step.
func (w *panelWeights) fill(ts *tileScratch, row, rows, k, depth int, folded bool) {
	a := &ts.fill
	a.ldw, a.rows = w.ld, rows
	switch w.format {
	case panelBF16:
		a.panel, a.w = at(ts.panel, 0), at(w.b, row*w.ld+w.bytes(k))
		a.steps, a.mask = depth/stepDepth, 1<<(depth%stepDepth)-1
		runKernel(fillBF16, a)
	case panelFP4:
		a.panel, a.w = at(ts.panel, 0), at(w.b, row*w.ld+w.bytes(k))
		a.scale, a.ldScale = at(w.scales, row*w.ldScale+k/GroupFP4), w.ldScale
		a.steps, a.mask = depth/blockFP4, 1<<(depth%blockFP4/2)-1
		a.scaleMask = 1<<((depth+GroupFP4-1)/GroupFP4) - 1
		runKernel(fillFP4, a)
		if depth < tileK || !w.normalPanel(row, rows, k) {
			for r := range rows {
				w.fillExtremes(ts, row+r, r, k, depth)
			}
		}
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
	a.w, a.scale = nil, nil
}

// fillExtremes replaces, in line r of the panel, the weights of e2m1 groups whose
// scale the kernel cannot add to their exponents: NaN, and powers that leave the
// range of normal numbers.
func (w *panelWeights) fillExtremes(ts *tileScratch, row, r, k, depth int) {
	scales := w.scales[row*w.ldScale+k/GroupFP4:][:(depth+GroupFP4-1)/GroupFP4]
	for step := 0; step < len(scales); {
		if len(scales)-step >= 8 && normalScales(binary.LittleEndian.Uint64(scales[step:])) {
			step += 8
			continue
		}
		if e := scales[step]; e < minScaleFP4 || e > maxScaleFP4 {
			codes := w.b[row*w.ld+(k+step*GroupFP4)/2:][:min(GroupFP4, depth-step*GroupFP4)/2]
			// The lower codes of the first eight bytes of a group are in step 0 of its block, those of the others in
			// step 1; the upper codes of even bytes in step 2, of odd bytes in step 3.
			lane := ts.panel[step/4*4*panelStep+r*pairLanes+step%4*tileSide:]
			for i, c := range codes {
				binary.LittleEndian.PutUint16(lane[i/8*panelStep+i%8*2:], extremeFP4(c&15, e))
				binary.LittleEndian.PutUint16(lane[(2+i%2)*panelStep+i/2*2:], extremeFP4(c>>4, e))
			}
		}
		step++
	}
}

// normalPanel reports whether no scale of a whole panel is an extreme one.
func (w *panelWeights) normalPanel(row, rows, k int) bool {
	normal := true
	for r := range rows {
		s := w.scales[(row+r)*w.ldScale+k/GroupFP4:][:tileK/GroupFP4]
		normal = normal && normalScales(binary.LittleEndian.Uint64(s)) &&
			normalScales(binary.LittleEndian.Uint64(s[8:]))
	}
	return normal
}

// blockFP4 is the e2m1 weights of a row that are widened together.
const blockFP4 = 4 * stepDepth

// The e8m0 codes under which every e2m1 weight is a normal bfloat16.
const (
	minScaleFP4 = 2
	maxScaleFP4 = 252
)

// normalScales reports whether none of eight scales is an extreme one.
func normalScales(s uint64) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	small := (s - minScaleFP4*ones) & ^s & tops
	large := (^s - (255-maxScaleFP4)*ones) & s & tops
	return small|large == 0
}

// extremeFP4 is a code times any e8m0 scale as bfloat16, rounded down.
func extremeFP4(code, e byte) uint16 {
	scale := math.Ldexp(1, int(e)-127)
	if e == 255 {
		scale = math.NaN()
	}
	return uint16(math.Float32bits(float32(float64(num.FromE2M1(code))*scale)) >> 16)
}

// maxPower bounds the powers of two that a panel takes; see notPowerOfTwo.
const maxPower = 100

// tablesFP8 holds the low bytes and the high bytes of every e4m3 code without
// its sign, as bfloat16 times each power of two. Every entry is exact and no
// number among them is subnormal, which tiles would take for zero.
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
