package block

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
)

// This file encodes the formats of two and three bits whose values are points of a lattice (lattice.go).

// lattice describes a format for its encoder.
type lattice struct {
	grid   func() []uint64 // returns the points, of dim values each
	dim    int             // values of a point: eight or four
	levels []int8          // values that a point may have, ascending
	group  int             // values with a common scale of four bits: 16 or 32
	unit   float32         // a value is d times unit times 2s+1, s being the scale, times the value of a point
	even   bool            // the number of negative values of eight is even
	put    func(dst []byte, c *chosen)

	once sync.Once
	all  []uint64   // the points, set by prepare
	near [][]uint16 // for each combination of levels, as digits: indices of the nearest points, nearest first
}

// chosen is what an encoder has chosen for 256 values.
type chosen struct {
	scales [16]byte  // one for each group
	points [64]int   // indices of points of four values, or 32 of eight
	signs  [32]uint8 // a bit for each value that is negative
}

// lattices holds the formats with an encoder.
var lattices = map[Format]*lattice{
	IQ2_XXS: {grid: octetGrid(IQ2_XXS), dim: 8, levels: []int8{8, 25, 43}, group: 32, unit: 1. / 8, even: true,
		put: putIQ2XXS},
	IQ2_XS: {grid: octetGrid(IQ2_XS), dim: 8, levels: []int8{8, 25, 43}, group: 16, unit: 1. / 8, even: true,
		put: putIQ2XS},
	IQ2_S: {grid: octetGrid(IQ2_S), dim: 8, levels: []int8{8, 25, 43}, group: 16, unit: 1. / 8, put: putIQ2S},
	IQ3_XXS: {grid: quadGrid(IQ3_XXS), dim: 4, levels: []int8{4, 12, 20, 28, 36, 44, 52, 62}, group: 32, unit: 1. / 4,
		even: true, put: putIQ3XXS},
	IQ3_S: {grid: quadGrid(IQ3_S), dim: 4, levels: []int8{1, 3, 5, 7, 9, 11, 13, 15}, group: 32, unit: 1,
		put: putIQ3S},
}

func octetGrid(f Format) func() []uint64 { return f.Octets }

func quadGrid(f Format) func() []uint64 {
	return func() (grid []uint64) {
		for _, p := range f.Quads() {
			grid = append(grid, uint64(p))
		}
		return grid
	}
}

// nearPoints is the number of points that are tried for a combination of levels.
const nearPoints = 16

// prepare lists the nearest points of every combination of levels.
func (l *lattice) prepare() {
	l.all = l.grid()
	levels := len(l.levels)
	combinations := 1
	for range l.dim {
		combinations *= levels
	}
	l.near = make([][]uint16, combinations)
	for at := range l.near {
		var near [nearPoints]struct{ distance, point int }
		n := 0
		for p, point := range l.all {
			distance, digits := 0, at
			for j := range l.dim {
				d := int(l.levels[digits%levels]) - int(int8(point>>(8*j)))
				distance, digits = distance+d*d, digits/levels
			}
			if n == nearPoints && distance >= near[n-1].distance {
				continue
			}
			n = min(n+1, nearPoints)
			i := n - 1
			for ; i > 0 && near[i-1].distance > distance; i-- {
				near[i] = near[i-1]
			}
			near[i].distance, near[i].point = distance, p
		}
		for _, c := range near[:n] {
			l.near[at] = append(l.near[at], uint16(c.point))
		}
	}
}

// choose finds the points for the magnitudes x with weights w and the factor 1/scale, and returns the sums of a fit of
// the scale to these points: w·p·x and w·p·p. Products are rounded before they are added, on every processor.
func (l *lattice) choose(points []int, x, w []float32, inv float32) (wpx, wpp float32) {
	n := len(l.levels)
	for o := range points {
		xs, ws := x[o*l.dim:][:l.dim], w[o*l.dim:][:l.dim]
		at := 0
		for j := l.dim - 1; j >= 0; j-- {
			at = at*n + l.level(float32(xs[j]*inv))
		}
		best, bestError := 0, float32(-1)
		for _, p := range l.near[at] {
			e, point := float32(0), l.all[p]
			for j := range l.dim {
				d := float32(xs[j]*inv) - float32(int8(point>>(8*j)))
				e += float32(float32(ws[j]*d) * d)
			}
			if bestError < 0 || e < bestError {
				best, bestError = int(p), e
			}
		}
		points[o] = best
		for j := range l.dim {
			p := float32(int8(l.all[best] >> (8 * j)))
			wpx, wpp = wpx+float32(ws[j]*p*xs[j]), wpp+float32(ws[j]*p*p)
		}
	}
	return wpx, wpp
}

// level returns the index of the level that is closest to v.
func (l *lattice) level(v float32) int {
	i := 0
	for i+1 < len(l.levels) && 2*v > float32(l.levels[i])+float32(l.levels[i+1]) {
		i++
	}
	return i
}

// encode writes one block of 256 values.
func (l *lattice) encode(dst []byte, src, importance []float32) {
	l.once.Do(l.prepare)
	var c chosen
	var x, w [256]float32
	for g := 0; g < 256; g += l.group {
		weigh(w[g:][:l.group], src[g:][:l.group], part(importance, g, l.group))
	}
	for o := range c.signs {
		c.signs[o] = magnitudes(x[8*o:][:8], src[8*o:][:8], w[8*o:][:8], l.even)
	}
	var scales [16]float32
	each := l.group / l.dim
	top := float32(l.levels[len(l.levels)-1])
	for g := range 256 / l.group {
		xs, ws, points := x[g*l.group:][:l.group], w[g*l.group:][:l.group], c.points[g*each:][:each]
		most, best := slices.Max(xs), float32(0)
		if !(most > 0) {
			continue
		}
		for t := range scaleTrials {
			// The largest value maps to 1.2 to 0.36 of the largest level.
			inv := top * (1.2 - float32(0.06*float32(t))) / most
			wpx, wpp := l.choose(points, xs, ws, inv)
			if wpp > 0 && wpx > 0 && float32(wpx*wpx) > float32(best*wpp) {
				best, scales[g] = float32(wpx*wpx)/wpp, wpx/wpp
			}
		}
	}
	putHalf(dst, slices.Max(scales[:])/(31*l.unit))
	d := half(dst)
	for g := range 256 / l.group {
		s := nearest((float32(scales[g]*inverse(d*l.unit))-1)/2, 0, 15)
		c.scales[g] = byte(s)
		l.choose(c.points[g*each:][:each], x[g*l.group:][:l.group], w[g*l.group:][:l.group],
			inverse(d*l.unit*float32(2*s+1)))
	}
	clear(dst[2:])
	l.put(dst, &c)
}

// magnitudes writes the magnitudes of eight values to x and returns their signs. If the number of negative values must
// be even and is not, the sign of the value that matters least is inverted, and its magnitude is negative.
func magnitudes(x, src, w []float32, even bool) (signs uint8) {
	least := 0
	for j, v := range src {
		if x[j] = abs(v); v < 0 {
			signs |= 1 << j
		}
		if w[j]*v*v < w[least]*src[least]*src[least] {
			least = j
		}
	}
	if even && bits.OnesCount8(signs)%2 != 0 {
		signs ^= 1 << least
		x[least] = -x[least]
	}
	return signs
}

// signWord returns the seven-bit sign codes of four octets and a 4-bit scale.
func (c *chosen) signWord(g int) uint32 {
	word := uint32(c.scales[g]) << 28
	for k := range 4 {
		word |= uint32(c.signs[4*g+k]&127) << (7 * k)
	}
	return word
}

// putScales writes sixteen, or the first eight, scales of four bits.
func (c *chosen) putScales(dst []byte, n int) {
	for i := range n {
		dst[i/2] |= c.scales[i] << (4 * (i % 2))
	}
}

func putIQ2XXS(dst []byte, c *chosen) {
	for g := range 8 {
		at := dst[2+8*g:][:8]
		for k := range 4 {
			at[k] = byte(c.points[4*g+k])
		}
		binary.LittleEndian.PutUint32(at[4:], c.signWord(g))
	}
}

func putIQ2XS(dst []byte, c *chosen) {
	for o, signs := range c.signs {
		binary.LittleEndian.PutUint16(dst[2+2*o:], uint16(c.points[o])|uint16(signs&127)<<9)
	}
	c.putScales(dst[66:], 16)
}

func putIQ2S(dst []byte, c *chosen) {
	for o, signs := range c.signs {
		dst[2+o] = byte(c.points[o])
		dst[34+o] = signs
		dst[66+o/4] |= byte(c.points[o]>>8) << (2 * (o % 4))
	}
	c.putScales(dst[74:], 16)
}

func putIQ3XXS(dst []byte, c *chosen) {
	for i, p := range c.points {
		dst[2+i] = byte(p)
	}
	for g := range 8 {
		binary.LittleEndian.PutUint32(dst[66+4*g:], c.signWord(g))
	}
}

func putIQ3S(dst []byte, c *chosen) {
	for i, p := range c.points {
		dst[2+i] = byte(p)
		dst[66+i/8] |= byte(p>>8) << (i % 8)
	}
	copy(dst[74:106], c.signs[:])
	c.putScales(dst[106:], 8)
}
