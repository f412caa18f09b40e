package weight

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Number of values of a row that share a scale, in the two FP4 formats.
const (
	mxGroup = 32 // for e8m0 scales
	nvGroup = 16 // for e4m3 scales and a factor for the whole matrix
)

// mostFactor is the maximum factor of an NVFP4 matrix. The largest value that a matrix can have, 6 * 448 * factor, is
// far below 1000 for trained weights; a reciprocal used as the factor would give far more.
const mostFactor = 1000.0 / (6 * 448)

// fp4 reads two e2m1 codes per byte, the first column in the low nibble, for o outputs and i inputs, with one of
//
//	scale, weight_scale   e8m0 [o, i/32]                               MXFP4
//	weight_scale          e4m3 [o, i/16], weight_scale_2 f32 [] or [1]        NVFP4 of modelopt
//
// weight_scale e4m3 [o, i/16], weight_global_scale f32 [1] NVFP4 of compressed-tensors, which divides
func (m *module) fp4(data, scale *Tensor, cols int) (Matrix, error) {
	if scale == nil {
		return Matrix{}, missingScale(data, scaleNames(strings.TrimSuffix(data.Name, "_packed"))...)
	}
	out := Matrix{Data: data, Scale: scale, Rows: data.Shape[0], Cols: cols, Values: F4E2M1x2, RowBytes: cols / 2,
		BlockRows: 1, BlockCols: mxGroup}
	factor, divisor := m.part(".weight_scale_2"), m.part(".weight_global_scale")
	if scale.DType == F8E4M3 && strings.HasSuffix(scale.Name, ".weight_scale") {
		return m.nvfp4(out, factor, divisor)
	}
	for _, t := range []*Tensor{factor, divisor} {
		if t != nil {
			return Matrix{}, scaleError(data, scale, fmt.Sprintf("%q belongs to NVFP4, whose scales must be F8_E4M3",
				t.Name))
		}
	}
	if scale.DType != F8E8M0 && scale.DType != U8 && scale.DType != F32 {
		return Matrix{}, scaleError(data, scale, "a scale of FP4 must be F8_E8M0 or U8 (e8m0 bytes)")
	}
	if strings.HasSuffix(scale.Name, ".weight_scale") {
		out.arrange = finiteScales
	}
	return out, out.checkGroups()
}

// checkGroups compares the shape of the scales with the number of groups.
func (m *Matrix) checkGroups() error {
	want := []int{m.Rows, blocks(m.Cols, m.BlockCols)}
	if !slices.Equal(m.Scale.Shape, want) {
		return scaleError(m.Data, m.Scale, fmt.Sprintf("blocks of %d x %d over %d x %d values need scale shape %v",
			m.BlockRows, m.BlockCols, m.Rows, m.Cols, want))
	}
	return nil
}

// nvfp4 sets the fields of a matrix with e4m3 scales.
func (m *module) nvfp4(out Matrix, factor, divisor *Tensor) (Matrix, error) {
	out.BlockCols = nvGroup
	if factor != nil && divisor != nil {
		return Matrix{}, fmt.Errorf("weight: matrix %q: %w: both %q (a factor) and %q (a divisor) are present, want "+
			"one", m.name, ErrScale, factor.Name, divisor.Name)
	}
	t := factor
	if t == nil {
		t = divisor
	}
	if t == nil {
		return Matrix{}, scaleError(out.Data, out.Scale, fmt.Sprintf("groups of %d need the tensor %q or %q, but "+
			"both are missing", nvGroup, m.stem+".weight_scale_2", m.stem+".weight_global_scale"))
	}
	v, err := scalar(t)
	if err != nil {
		return Matrix{}, err
	}
	if divisor != nil {
		v = 1 / v
	}
	if !(v > 0) || v > mostFactor {
		return Matrix{}, fmt.Errorf("weight: matrix %q: %w: %s makes the factor of its scales %v, want one above 0 "+
			"and up to %.2f (a factor multiplies as weight_scale_2 and divides as weight_global_scale)", m.name,
			ErrScale, t.Name, v, mostFactor)
	}
	out.Factor = v
	if out.Cols%nvGroup != 0 {
		return Matrix{}, scaleError(out.Data, out.Scale, fmt.Sprintf("%d columns are not whole groups of %d; want a "+
			"multiple", out.Cols,
			nvGroup))
	}
	if err := out.checkGroups(); err != nil {
		return Matrix{}, err
	}
	out.arrange = func(m *Matrix) error {
		if err := finite(m.Scale); err != nil {
			return err
		}
		*m = m.asMXFP4()
		return nil
	}
	return out, nil
}

// scalar returns the value of a tensor with a single float32.
func scalar(t *Tensor) (float32, error) {
	if t.DType != F32 || t.Elements() != 1 || len(t.Data) != 4 {
		return 0, fmt.Errorf("weight: %s is %s %s in %s, want one F32: %w", t.Name, t.DType, shapeText(t.Shape), t.File,
			ErrScale)
	}
	v, err := ReadF32(t)
	if err != nil {
		return 0, err
	}
	if x := float64(v[0]); !(x > 0) || math.IsInf(x, 0) {
		return 0, fmt.Errorf("weight: %s is %v, want a number above 0, in %s: %w", t.Name, x, t.File, ErrScale)
	}
	return v[0], nil
}

// asMXFP4 converts an NVFP4 matrix to MXFP4 if this is exact: factor and scales are powers of two, scales of adjacent
// groups are equal in pairs, and products of factor and scale are normal e8m0 numbers. Codes do not change.
func (m Matrix) asMXFP4() Matrix {
	exponent, ok := powerOfTwo(m.Factor)
	if !ok || m.Cols%mxGroup != 0 {
		return m
	}
	from := m.Scale.Data
	to := make([]byte, 0, len(from)/2)
	for i := 0; i+1 < len(from); i += 2 {
		b := from[i]
		// The two scales differ, or are not a normal positive power of two.
		if b != from[i+1] || b&7 != 0 || b < 8 || b >= 0x80 {
			return m
		}
		e := int(b>>3) - 7 + exponent + 127
		if e < 1 || e > 254 {
			return m
		}
		to = append(to, byte(e))
	}
	scale := *m.Scale
	scale.DType, scale.Data, scale.Shape = F8E8M0, to, []int{m.Rows, m.Cols / mxGroup}
	m.Scale, m.Factor, m.BlockCols = &scale, 0, mxGroup
	return m
}

// powerOfTwo returns the exponent of v; ok is false unless v is a normal power of two.
func powerOfTwo(v float32) (exponent int, ok bool) {
	bits := math.Float32bits(v)
	return int(bits>>23) - 127, bits&(1<<23-1) == 0 && bits>>23 > 0 && bits>>23 < 255
}

// Stack returns n matrices [o, i] that are stored in two tensors, as MXFP4:
//
//	name_blocks   U8 [n, o, i/32, 16]
//	name_scales   U8 [n, o, i/32], e8m0
func (c *Checkpoint) Stack(name string) ([]Matrix, error) {
	blocks, scales := c.tensors[name+"_blocks"], c.tensors[name+"_scales"]
	if blocks == nil || scales == nil {
		return nil, fmt.Errorf("weight: matrices %q: %w: %q and %q are needed", name, ErrNotFound, name+"_blocks",
			name+"_scales")
	}
	s := blocks.Shape
	if blocks.DType != U8 || scales.DType != U8 || len(s) != 4 || s[3] != mxGroup/2 || slices.Contains(s, 0) ||
		!slices.Equal(scales.Shape, s[:3]) {
		return nil, scaleError(blocks, scales, "matrices stored together must be U8 [n, rows, groups, 16] with "+
			"scales U8 [n, rows, groups]")
	}
	out := make([]Matrix, 0, s[0])
	size, each := s[1]*s[2]*s[3], s[1]*s[2]
	for i := range s[0] {
		data, scale := *blocks, *scales
		data.Data, data.Shape = blocks.Data[i*size:][:size], []int{s[1], s[2] * s[3]}
		scale.Data, scale.Shape = scales.Data[i*each:][:each], []int{s[1], s[2]}
		out = append(out, Matrix{Data: &data, Scale: &scale, Rows: s[1], Cols: 2 * s[2] * s[3], Values: F4E2M1x2,
			RowBytes: s[2] * s[3], BlockRows: 1, BlockCols: mxGroup, Parts: []string{blocks.Name, scales.Name}})
	}
	return out, nil
}
