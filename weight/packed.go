package weight

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// packed reads the packed formats of compressed-tensors, with codes of b bits for o outputs, i inputs and groups of g:
//
//	weight_packed   I32 [o, ceil(i*b/32)]     code k of a row at bits k*b of the row; the value and 2^(b-1)
//	weight_scale    BF16, F16 or F32 [o, i/g], or [o, 1]
//	weight_shape    I64 [2]                   o, i
//	weight_zero_point   I32 [ceil(o*b/32), i/g]    packed along rows, with the same offset; absent where it is zero
//	weight_g_idx    I32 [i]                   the group of each column
//
// and weight_packed U8, which is FP4. The bytes of a row are those of its codes in order, so that they need no copy.
func (m *module) packed(data *Tensor) (Matrix, error) {
	m.unused("input_scale", "input_global_scale")
	scale := m.part(".weight_scale")
	if data.DType == U8 {
		m.part(".weight_shape")
		return m.fp4(data, scale, 2*data.Shape[1])
	}
	if data.DType != I32 {
		return Matrix{}, fmt.Errorf("weight: matrix %q in %s: %w %s; packed values are I32 (integers) or U8 (FP4)",
			data.Name, data.File, ErrDType, data.DType)
	}
	if scale == nil {
		return Matrix{}, missingScale(data, m.stem+".weight_scale")
	}
	rows, cols, err := m.shape(data)
	if err != nil {
		return Matrix{}, err
	}
	out := Matrix{Data: data, Rows: rows, Cols: cols, RowBytes: 4 * data.Shape[1]}
	bits := 0
	for _, b := range []int{4, 8} {
		if blocks(cols, 32/b) == data.Shape[1] {
			bits = b
		}
	}
	switch {
	case bits == 4 && cols%2 == 0:
		out.Values = U4x2
	case bits == 8:
		out.Values = U8
	default:
		return Matrix{}, fmt.Errorf("weight: matrix %q %s in %s with weight_shape [%d %d]: %w: rows of %d words are "+
			"not %d integers of 4 or 8 bits", data.Name, shapeText(data.Shape), data.File, rows, cols, ErrScale,
			data.Shape[1], cols)
	}
	if err := m.groups(&out, scale, bits); err != nil {
		return Matrix{}, err
	}
	return out, m.packedZeros(&out, bits)
}

// shape reads weight_shape.
func (m *module) shape(data *Tensor) (rows, cols int, err error) {
	t := m.part(".weight_shape")
	if t == nil {
		return 0, 0, fmt.Errorf("weight: matrix %q in %s: %w: %q, which has its number of columns, is missing",
			data.Name, data.File, ErrScale, m.stem+".weight_shape")
	}
	v, err := ReadI32(t)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %w", ErrScale, err)
	}
	if len(v) != 2 || v[0] < 0 || v[1] <= 0 || int(v[0]) != data.Shape[0] {
		return 0, 0, fmt.Errorf("weight: %s in %s is %v, want the rows of %q, %d, and its columns: %w", t.Name, t.File,
			v, data.Name, data.Shape[0], ErrScale)
	}
	return int(v[0]), int(v[1]), nil
}

// groups checks the scales of groups, and that columns are in the order of their groups.
func (m *module) groups(out *Matrix, scale *Tensor, bits int) error {
	if !floatScale(scale) {
		return scaleError(out.Data, scale, "a scale of integers must be F32, BF16 or F16")
	}
	shape := scale.Shape
	if len(shape) == 1 { // one scale per row
		shape = []int{shape[0], 1}
	}
	if len(shape) != 2 || shape[0] != out.Rows || shape[1] < 1 || out.Cols%shape[1] != 0 {
		return scaleError(out.Data, scale, fmt.Sprintf("%d x %d values need scale shape [%d n], where n divides %d",
			out.Rows, out.Cols, out.Rows, out.Cols))
	}
	out.Scale, out.BlockRows, out.BlockCols = shaped(scale, shape...), 1, out.Cols/shape[1]
	if out.Values == U4x2 && out.BlockCols%2 != 0 {
		return scaleError(out.Data, scale, fmt.Sprintf("groups of %d values do not fill whole bytes", out.BlockCols))
	}
	if err := m.c.Scheme.confirm(scale, bits, out.BlockCols, out.Cols); err != nil {
		return err
	}
	out.arrange = finiteScales
	return m.inOrder(m.part(".weight_g_idx"), out.Cols, out.BlockCols)
}

// inOrder returns an error if the list of the groups of columns, if there is one, is not ascending.
func (m *module) inOrder(index *Tensor, cols, size int) error {
	if index == nil {
		return nil
	}
	v, err := ReadI32(index)
	if err != nil {
		return err
	}
	if len(v) != cols {
		return fmt.Errorf("weight: %s has %d values in %s, want one for each of %d columns: %w", index.Name, len(v),
			index.File, cols, ErrScale)
	}
	for c, g := range v {
		if int(g) != c/size {
			return fmt.Errorf("weight: %s puts column %d in group %d, in %s: %w: reordered columns (desc_act, "+
				"actorder) are not supported; use a release with desc_act false", index.Name, c, g, index.File,
				ErrScale)
		}
	}
	return nil
}

// packedZeros unpacks the zero points, which are packed by columns: that of row r is at bits r*b of a column.
func (m *module) packedZeros(out *Matrix, bits int) error {
	t := m.part(".weight_zero_point")
	if t == nil {
		return nil
	}
	groups := out.Scale.Shape[1]
	if t.DType != I32 || !slices.Equal(t.Shape, []int{blocks(out.Rows, 32/bits), groups}) {
		return scaleError(out.Data, t, fmt.Sprintf("zero points of %d rows in %d groups must be I32 [%d %d]", out.Rows,
			groups, blocks(out.Rows, 32/bits), groups))
	}
	zeros := make([]byte, out.Rows*groups)
	each := 32 / bits
	for r := range out.Rows {
		for g := range groups {
			word := binary.LittleEndian.Uint32(t.Data[4*(r/each*groups+g):])
			zeros[r*groups+g] = byte(word >> (r % each * bits) & (1<<bits - 1))
		}
	}
	out.Zero = zeroTensor(t, zeros, out.Rows, groups)
	return nil
}

// zeroTensor returns a tensor with unpacked zero points of t.
func zeroTensor(t *Tensor, zeros []byte, rows, groups int) *Tensor {
	return &Tensor{Name: t.Name, DType: U8, Shape: []int{rows, groups}, Data: zeros, File: t.File, Offset: t.Offset}
}

// int8 reads I8 values with one scale per row, or per group of a row: weight I8 [o, i], weight_scale [o, 1], [o] or [o,
// i/g].
func (m *module) int8(data, scale *Tensor) (Matrix, error) {
	out := Matrix{Data: data, Rows: data.Shape[0], Cols: data.Shape[1], Values: I8, RowBytes: data.Shape[1]}
	if out.Cols == 0 {
		return Matrix{}, scaleError(data, scale, "the matrix has no columns; want at least one")
	}
	return out, m.groups(&out, scale, 8)
}
