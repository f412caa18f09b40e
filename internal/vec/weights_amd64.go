//go:build !purego

package vec

import "unsafe"

// weights is a matrix of weights in any format.
type weights struct {
	format format
	f32    []float32 // for formatF32
	b      []byte    // for the other formats
	ld     int       // elements between rows
	scale  FP8Blocks
}

// size returns the number of bytes of one weight.
func (w *weights) size() int {
	return [formats]int{formatF32: 4, formatBF16: 2, formatFP8: 1}[w.format]
}

// at returns the address of an element.
func (w *weights) at(row, col int) unsafe.Pointer {
	i := row*w.ld + col
	if w.format == formatF32 {
		return at(w.f32, i)
	}
	return at(w.b, i*w.size())
}

// band returns the number of rows, starting at row and at most most, that share their scales.
func (w *weights) band(row, most int) int {
	if w.format != formatFP8 {
		return most
	}
	return min(most, w.scale.Rows-(w.scale.Row0+row)%w.scale.Rows)
}

// widen writes columns [from, from+len(dst)) of a row. They start at a block of scales, or lie within one.
func (w *weights) widen(s *isa, sc *scratch, dst []float32, row, from int) {
	i := row*w.ld + from
	switch w.format {
	case formatF32:
		copy(dst, w.f32[i:][:len(dst)])
	case formatBF16:
		s.vec.widenBF16With(sc, dst, w.b[2*i:][:2*len(dst)])
	case formatFP8:
		s.vec.widenWith(sc, dst, w.b[i:][:len(dst)], blocks{w.scale.row(row)[from/w.scale.Cols:], w.scale.Cols})
	}
}
