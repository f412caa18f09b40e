package weight

import (
	"fmt"
	"slices"
	"strings"
)

// Block sizes of the two quantised forms.
const (
	fp8Block = 128 // one scale per 128 x 128 values of FP8
	fp4Group = 32  // one scale per output row and 32 inputs of FP4
)

// Matrix is a weight of Rows outputs by Cols inputs, with its block scales. The true value is
//
//	W[r, c] = value(Data, r, c) * scale(Scale, r/BlockRows, c/BlockCols)    integer divisions
//
// and the last blocks may be ragged. The scale multiplies, also where its name ends in "_inv".
type Matrix struct {
	Data *Tensor
	// [ceil(Rows/BlockRows), ceil(Cols/BlockCols)]: F32, F8_E8M0, or U8 holding e8m0 bytes; nil when unscaled
	Scale *Tensor

	BlockRows, BlockCols int // 128 x 128 for FP8, 1 x 32 for FP4, 0 x 0 when unscaled

	Rows, Cols int // in values; Data's own shape counts bytes when FP4 is stored as I8 or U8
	// how Data's bytes are read: F32, BF16, F16, a block format, F8E4M3, or F4E2M1x2 (also where Data.DType says I8 or
	// U8)
	Values DType
}

// Matrix finds the weight called name and, beside it, the scale: for "X.weight" that is "X.weight_scale_inv" or
// "X.scale". Whether the weight is quantised follows from the dtypes of these tensors. Ambiguous combinations are
// errors: FP8 or FP4 without scale, plain floats with one, two scales, or a scale whose shape or dtype does not fit.
func (c *Checkpoint) Matrix(name string) (Matrix, error) {
	data, ok := c.Tensor(name)
	if !ok {
		if c.closed {
			return Matrix{}, fmt.Errorf("weight: matrix %q: %w", name, ErrClosed)
		}
		return Matrix{}, fmt.Errorf("weight: matrix %q: %w among %d tensors", name, ErrNotFound, len(c.tensors))
	}
	if len(data.Shape) != 2 {
		return Matrix{}, fmt.Errorf("weight: matrix %q in %s: %w: shape %s has %d dimensions, a matrix has 2 "+
			"(other shapes are read with Tensor)",
			name, data.File, ErrScale, shapeText(data.Shape), len(data.Shape))
	}
	scale, err := c.scaleOf(data)
	if err != nil {
		return Matrix{}, err
	}
	m := Matrix{Data: data, Scale: scale, Rows: data.Shape[0], Cols: data.Shape[1], Values: data.DType}
	_, blocked := data.DType.Block()
	switch d := data.DType; {
	case d == F32 || d == F16 || d == BF16 || blocked:
		if scale != nil {
			return Matrix{}, scaleError(data, scale,
				"these values have no scale beside them, and whether to apply it is ambiguous")
		}
		return m, nil
	case d == F8E4M3:
		m.BlockRows, m.BlockCols = fp8Block, fp8Block
	case d == F4E2M1x2:
		m.BlockRows, m.BlockCols = 1, fp4Group
	case d == I8 || d == U8:
		m.BlockRows, m.BlockCols = 1, fp4Group
		m.Values = F4E2M1x2
		if m.Cols *= 2; m.Cols < 0 { // only possible with 0 rows
			return Matrix{}, fmt.Errorf("weight: matrix %q in %s: %w: shape %s is too wide for packed FP4", name,
				data.File, ErrScale, shapeText(data.Shape))
		}
	default:
		return Matrix{}, fmt.Errorf("weight: matrix %q in %s: %w %s; a matrix is F32, F16, BF16, F8_E4M3 with a "+
			"scale, or FP4 (F4, I8, U8) with a scale",
			name, data.File, ErrDType, data.DType)
	}
	return m, m.checkScale()
}

// checkScale verifies that a quantised matrix has the scale its blocks need.
func (m *Matrix) checkScale() error {
	if m.Scale == nil {
		return fmt.Errorf(
			"weight: matrix %q in %s: %w: %s of shape %s needs block scales, and neither %s is in the checkpoint",
			m.Data.Name, m.Data.File, ErrScale, m.Data.DType, shapeText(m.Data.Shape),
			strings.Join(quoteAll(scaleNames(m.Data.Name)), " nor "))
	}
	switch m.Scale.DType {
	case F32, F8E8M0, U8:
	default:
		return scaleError(m.Data, m.Scale, "a scale is F32, F8_E8M0 or U8 (e8m0 bytes)")
	}
	want := []int{blocks(m.Rows, m.BlockRows), blocks(m.Cols, m.BlockCols)}
	if !slices.Equal(m.Scale.Shape, want) {
		return scaleError(m.Data, m.Scale, fmt.Sprintf("blocks of %d x %d over %d x %d values need scale shape %v",
			m.BlockRows, m.BlockCols, m.Rows, m.Cols, want))
	}
	return nil
}

// scaleOf finds the one scale beside data, or nil.
func (c *Checkpoint) scaleOf(data *Tensor) (*Tensor, error) {
	var found *Tensor
	for _, name := range scaleNames(data.Name) {
		t, ok := c.Tensor(name)
		if !ok {
			continue
		}
		if found != nil {
			return nil, scaleError(data, found,
				fmt.Sprintf("a second scale %q in %s makes it ambiguous", t.Name, t.File))
		}
		found = t
	}
	return found, nil
}

// scaleNames lists the names a scale of the weight may have: the Hugging Face spelling, then the official one.
func scaleNames(name string) []string {
	names := []string{name + "_scale_inv"}
	if stem, ok := strings.CutSuffix(name, ".weight"); ok {
		names = append(names, stem+".scale")
	}
	return names
}

// blocks is ceil(n/size), without overflow for any n >= 0.
func blocks(n, size int) int {
	if n == 0 {
		return 0
	}
	return (n-1)/size + 1
}

// scaleError names both tensors with file, dtype and shape.
func scaleError(data, scale *Tensor, reason string) error {
	return fmt.Errorf("weight: matrix %q (%s %s in %s) with scale %q (%s %s in %s): %w: %s",
		data.Name, data.DType, shapeText(data.Shape), data.File,
		scale.Name, scale.DType, shapeText(scale.Shape), scale.File, ErrScale, reason)
}

func quoteAll(names []string) []string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = fmt.Sprintf("%q", n)
	}
	return quoted
}
