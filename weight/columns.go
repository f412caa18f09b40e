package weight

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"sparrow/internal/mmap"
)

// columns reads the formats that store a matrix by columns, AWQ and GPTQ. The matrix has o outputs, i inputs, and
// groups of g inputs:
//
//	        AWQ (version gemm)                        GPTQ
//	qweight   I32 [i, o/8]: nibble n of word w is       I32 [i*b/32, o]: code k of a column's words is input k
//	          output 8w + awqOrder[n]
//	qzeros    I32 [i/g, o/8], in the same order        I32 [i/g, o*b/32]
//	scales    F16 [i/g, o]                             F16 [i/g, o]
//	g_idx                                              I32 [i], the group of each column; may be missing
//
// Arrange converts them to rows of codes with scales and zero points [o, i/g].
func (m *module) columns(q *Tensor) (Matrix, error) {
	zeros, scales := m.part(".qzeros"), m.part(".scales")
	if scales == nil {
		return Matrix{}, missingScale(q, m.stem+".scales")
	}
	if q.DType != I32 || scales.DType != F16 && scales.DType != BF16 && scales.DType != F32 || len(scales.Shape) != 2 ||
		slices.Contains(scales.Shape, 0) {
		return Matrix{}, scaleError(q, scales, "qweight must be I32, and scales F16, BF16 or F32 [groups, rows]")
	}
	out := Matrix{Rows: scales.Shape[1], Values: U4x2, BlockRows: 1}
	by := columnForm{q: q, zeros: zeros, scales: scales, scheme: &m.c.Scheme, bits: 4,
		mapped: m.c.maps[q.File] != nil}
	groups := scales.Shape[0]
	switch isAWQ := out.Rows%8 == 0 && q.Shape[1] == out.Rows/8; {
	case m.c.Scheme.Method == "awq" || m.c.Scheme.Method == "" && isAWQ && q.Shape[1] != out.Rows:
		if !isAWQ {
			return Matrix{}, scaleError(q, scales, fmt.Sprintf("AWQ with %d rows needs qweight of shape [columns %d]",
				out.Rows, out.Rows/8))
		}
		out.Cols, by.awq = q.Shape[0], true
	case q.Shape[1] == out.Rows:
		if err := by.gptqBits(&out, q.Shape[0]); err != nil {
			return Matrix{}, err
		}
	default:
		return Matrix{}, scaleError(q, scales, fmt.Sprintf("%d rows need qweight of shape [columns %d] as AWQ, or "+
			"[columns/8 %d] as GPTQ", out.Rows, out.Rows/8, out.Rows))
	}
	if out.Cols == 0 || out.Cols%groups != 0 || out.Cols%(32/by.bits) != 0 {
		return Matrix{}, scaleError(q, scales, fmt.Sprintf("%d columns cannot be divided into %d equal groups of "+
			"whole words; want a number of groups that divides them", out.Cols, groups))
	}
	out.BlockCols = out.Cols / groups
	if out.BlockCols%2 != 0 {
		return Matrix{}, scaleError(q, scales, fmt.Sprintf("groups of %d values do not fill whole bytes; want "+
			"groups of an even number of values",
			out.BlockCols))
	}
	out.RowBytes = out.Cols * by.bits / 8
	if err := m.c.Scheme.confirm(scales, by.bits, out.BlockCols, out.Cols); err != nil {
		return Matrix{}, err
	}
	if err := by.checkZeros(&out); err != nil {
		return Matrix{}, err
	}
	if err := m.inOrder(m.part(".g_idx"), out.Cols, out.BlockCols); err != nil {
		return Matrix{}, err
	}
	out.Data = &Tensor{Name: q.Name, DType: U8, Shape: []int{out.Rows, out.RowBytes}, File: q.File, Offset: q.Offset}
	out.Scale = &Tensor{Name: scales.Name, DType: scales.DType, Shape: []int{out.Rows, groups}, File: scales.File,
		Offset: scales.Offset}
	out.arrange = by.arrange
	return out, nil
}

// columnForm holds the stored tensors of a matrix, and how its codes are packed.
type columnForm struct {
	q, zeros, scales *Tensor
	scheme           *Scheme
	bits             int
	awq              bool // whether codes are in the order of AWQ, or of GPTQ
	noZeros          bool // whether every zero point is the middle of the range of codes
	mapped           bool // whether the codes are in a mapped file
}

// gptqBits returns the bits of a code: from the configuration, or the only number that agrees with the zero points.
func (f *columnForm) gptqBits(out *Matrix, words int) error {
	groups := f.scheme.Groups
	switch {
	case len(groups) > 0:
		f.bits = groups[0].Bits
	case f.zeros != nil && len(f.zeros.Shape) == 2 && f.zeros.Shape[1] == blocks(out.Rows, 4):
		f.bits = 8
	}
	if f.bits != 4 && f.bits != 8 {
		return fmt.Errorf("weight: %s: bits is %d, want 4 or 8: %w", f.q.Name, f.bits, ErrDType)
	}
	if f.bits == 8 {
		out.Values = U8
	}
	out.Cols = words * (32 / f.bits)
	return nil
}

// checkZeros checks the shape of the zero points.
func (f *columnForm) checkZeros(out *Matrix) error {
	f.noZeros = !f.awq && f.scheme.Symmetric
	if f.zeros == nil {
		if f.noZeros {
			return nil
		}
		return fmt.Errorf("weight: matrix %q in %s: %w: its zero points, qzeros, are missing", f.q.Name, f.q.File,
			ErrScale)
	}
	want := []int{f.scales.Shape[0], blocks(out.Rows, 32/f.bits)}
	if f.zeros.DType != I32 || !slices.Equal(f.zeros.Shape, want) {
		return scaleError(f.q, f.zeros, fmt.Sprintf("zero points of %d rows in %d groups must be I32 "+
			"%v", out.Rows, want[0],
			want))
	}
	return nil
}

// arrange reorders codes, scales and zero points into rows. File pages with the codes are dropped, so that memory
// contains only one copy.
func (f *columnForm) arrange(m *Matrix) error {
	if err := finite(f.scales); err != nil {
		return err
	}
	groups, size := f.scales.Shape[0], f.scales.DType.Size()
	scales := make([]byte, len(f.scales.Data))
	for g := range groups {
		for r := range m.Rows {
			copy(scales[(r*groups+g)*size:][:size], f.scales.Data[(g*m.Rows+r)*size:])
		}
	}
	if !f.noZeros {
		zeros, err := f.zeroPoints(m.Rows, groups)
		if err != nil {
			return err
		}
		m.Zero = zeroTensor(f.zeros, zeros, m.Rows, groups)
	}
	data, scale := *m.Data, *m.Scale
	data.Data, scale.Data = make([]byte, m.Rows*m.RowBytes), scales
	words := m.RowBytes / 4 // 32-bit words per row
	if f.awq {
		eachBand(m.Rows/8, func(first, end int) { f.awqRows(data.Data, m, first, end) })
	} else {
		eachBand(m.Rows, func(first, end int) { transposeWords(data.Data, f.q.Data, words, m.Rows, first, end) })
	}
	m.Data, m.Scale = &data, &scale
	if f.mapped {
		mmap.Drop(f.q.Data)
	}
	return nil
}

// zeroPoints returns the zero points of all rows, [rows, groups].
func (f *columnForm) zeroPoints(rows, groups int) ([]byte, error) {
	zeros := make([]byte, rows*groups)
	each := 32 / f.bits
	stride := f.zeros.Shape[1]
	for g := range groups {
		for r := range rows {
			at := r % each
			if f.awq {
				at = awqNibble[at]
			}
			word := binary.LittleEndian.Uint32(f.zeros.Data[4*(g*stride+r/each):])
			z := word >> (at * f.bits) & (1<<f.bits - 1)
			if !f.awq && !f.scheme.PlainZeros {
				z++
			}
			if z > 255 {
				return nil, fmt.Errorf("weight: %s: the zero point of row %d, group %d is %d, want up to 255, in %s: "+
					"%w", f.zeros.Name, r, g, z, f.zeros.File, ErrScale)
			}
			zeros[r*groups+g] = byte(z)
		}
	}
	return zeros, nil
}

// awqNibble[k] is the nibble of an AWQ word that contains output k of eight.
var awqNibble = [8]int{0, 4, 1, 5, 2, 6, 3, 7}

// awqRows writes the rows of the AWQ words first to end-1. A word has codes of eight rows; eight columns are written at
// a time.
func (f *columnForm) awqRows(to []byte, m *Matrix, first, end int) {
	stride := f.q.Shape[1]
	for w := first; w < end; w++ {
		for c := 0; c < m.Cols; c += 8 {
			var rows [8]uint32
			for i := range 8 {
				word := binary.LittleEndian.Uint32(f.q.Data[4*((c+i)*stride+w):])
				for r, n := range awqNibble {
					rows[r] |= word >> (4 * n) & 15 << (4 * i)
				}
			}
			for r, v := range rows {
				binary.LittleEndian.PutUint32(to[(8*w+r)*m.RowBytes+c/2:], v)
			}
		}
	}
}

// transposeWords writes rows first to end-1 of a matrix [rows, words] of 32-bit words that is stored as [words, rows].
// A cache line is read once for sixteen rows.
func transposeWords(to, from []byte, words, rows, first, end int) {
	const line = 16
	for r := first; r < end; r += line {
		n := min(line, end-r)
		for w := range words {
			src := from[4*(w*rows+r):]
			for i := range n {
				copy(to[4*((r+i)*words+w):][:4], src[4*i:])
			}
		}
	}
}

// eachBand divides n items into ranges and calls do for them on all cores.
func eachBand(n int, do func(first, end int)) {
	parts := min(runtime.GOMAXPROCS(0), n)
	var wait sync.WaitGroup
	for p := range parts {
		wait.Go(func() { do(p*n/parts, (p+1)*n/parts) })
	}
	wait.Wait()
}
