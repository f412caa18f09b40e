package weight

import (
	"fmt"
	"strings"
)

// Matrix is a weight of Rows outputs by Cols inputs, with its scales. The true value is
//
//	W[r, c] = (value(Data, r, c) - zero) * (scale * Factor)
//
// where scale and zero are those of the block: row r/BlockRows, column c/BlockCols (integer divisions). The last blocks
// may be ragged. The scale multiplies, also if its name ends in "_inv".
type Matrix struct {
	Data *Tensor
	// Scale has shape [ceil(Rows/BlockRows), ceil(Cols/BlockCols)] and type F32, BF16, F16, F8_E4M3, F8_E8M0, or U8
	// with e8m0 bytes; nil if the values have no scales.
	Scale *Tensor
	// Zero has the zero points of integers, U8 in the shape of Scale. If it is nil, the zero point is 8 for U4x2, 128
	// for U8, and 0 for other values.
	Zero   *Tensor
	Factor float32 // factor of all scales; 0 if there is none

	BlockRows, BlockCols int // rows and columns that share a scale; 0 x 0 without scales

	Rows, Cols int // values; the shape of Data counts bytes or words if values are packed
	// Values is the type in which Data's bytes are read: F32, BF16, F16, a block format, F8E4M3, F4E2M1x2 (also if
	// Data.DType is I8 or U8), U4x2, U8 or I8.
	Values   DType
	RowBytes int // bytes from a row of Data to the next row

	Parts []string // names of all tensors of the matrix, including those that are not needed

	// arrange is the function that Arrange runs; nil if there is nothing to do, or after it has run.
	arrange func(m *Matrix) error
}

// Reordered reports whether the matrix is not stored by rows: Data, Scale and Zero have no bytes before
// [Matrix.Arrange].
func (m *Matrix) Reordered() bool { return m.Data.Data == nil && m.Data.Drawn == nil }

// Arrange prepares a matrix for reading. A matrix that is not stored by rows is rearranged in newly allocated memory,
// and the file pages that it was read from are dropped. Scales of groups are checked: NaN and infinity are errors.
// NVFP4 values that were converted exactly from MXFP4 become MXFP4 again.
func (m *Matrix) Arrange() error {
	if m.arrange == nil {
		return nil
	}
	err := m.arrange(m)
	if err == nil {
		m.arrange = nil
	}
	return err
}

// stores has the endings of names under which the values of a matrix may be stored.
var stores = []string{".weight", ".weight_packed", ".qweight"}

// HasMatrix reports whether there is a matrix with the given name, in any form.
func (c *Checkpoint) HasMatrix(name string) bool {
	if _, ok := c.tensors[name]; ok {
		return true
	}
	stem, ok := strings.CutSuffix(name, ".weight")
	for _, end := range stores {
		if _, found := c.tensors[stem+end]; ok && found {
			return true
		}
	}
	return false
}

// Matrix finds the weight called name, such as "X.weight", in whatever form it is stored: as "X.weight" with separate
// scales, "X.weight_packed" or "X.qweight". The form follows from the tensors that exist, their types and shapes;
// [Checkpoint.Scheme] has the few facts that they do not show. Ambiguous combinations are errors: two forms at once,
// FP8 or FP4 without scale, plain floats with one, two scales, or a scale whose shape or dtype does not fit.
func (c *Checkpoint) Matrix(name string) (Matrix, error) {
	if c.closed {
		return Matrix{}, fmt.Errorf("weight: matrix %q: %w", name, ErrClosed)
	}
	m := module{c: c, name: name}
	m.stem, m.named = strings.CutSuffix(name, ".weight")
	data, err := m.values()
	if err != nil {
		return Matrix{Parts: m.parts}, err
	}
	if len(data.Shape) != 2 {
		return Matrix{Parts: m.parts}, fmt.Errorf("weight: matrix %q in %s: %w: shape %s has %d dimensions, a matrix "+
			"has 2 (other shapes are read with Tensor)",
			data.Name, data.File, ErrScale, shapeText(data.Shape), len(data.Shape))
	}
	out, err := m.read(data)
	out.Parts = m.parts
	return out, err
}

// module holds the tensors of one matrix.
type module struct {
	c     *Checkpoint
	name  string   // name of the weight
	stem  string   // name of the weight without .weight
	named bool     // whether the name ends in .weight; other names can only have the current form of FP8
	parts []string // names of the tensors that were found
}

// part finds a tensor of the module.
func (m *module) part(end string) *Tensor {
	if !m.named {
		return nil
	}
	return m.tensor(m.stem + end)
}

func (m *module) tensor(name string) *Tensor {
	t, ok := m.c.tensors[name]
	if !ok {
		return nil
	}
	m.parts = append(m.parts, name)
	return t
}

// values finds the one tensor with the values of the matrix.
func (m *module) values() (*Tensor, error) {
	if !m.named {
		if t := m.tensor(m.name); t != nil {
			return t, nil
		}
		return nil, m.notFound()
	}
	var found *Tensor
	for _, end := range stores {
		t := m.part(end)
		if t != nil && found != nil {
			return nil, fmt.Errorf("weight: matrix %q: %w: both %q and %q hold its values, which is ambiguous", m.name,
				ErrScale, found.Name, t.Name)
		}
		if t != nil {
			found = t
		}
	}
	if found == nil {
		return nil, m.notFound()
	}
	return found, nil
}

func (m *module) notFound() error {
	return fmt.Errorf("weight: matrix %q: %w among %d tensors", m.name, ErrNotFound, len(m.c.tensors))
}

// read reads the form that the tensor with the values belongs to.
func (m *module) read(data *Tensor) (Matrix, error) {
	switch {
	case strings.HasSuffix(data.Name, ".qweight"):
		return m.columns(data)
	case strings.HasSuffix(data.Name, ".weight_packed") && m.named:
		return m.packed(data)
	}
	m.unused("input_scale", "output_scale")
	scale, err := m.scale(data)
	if err != nil {
		return Matrix{}, err
	}
	_, blocked := data.DType.Block()
	switch d := data.DType; {
	case d == F32 || d == F16 || d == BF16 || blocked:
		if scale != nil {
			return Matrix{}, scaleError(data, scale,
				"values of this type have no scale, but one is present, and whether to apply it is ambiguous")
		}
		out := Matrix{Data: data, Rows: data.Shape[0], Cols: data.Shape[1], Values: d}
		out.RowBytes = rowBytes(data)
		return out, nil
	case d == F8E4M3:
		return m.fp8(data, scale)
	case d == F4E2M1x2:
		if data.Shape[1]%2 != 0 {
			return Matrix{}, fmt.Errorf("weight: matrix %q in %s: %w: rows of %d values are not whole bytes", data.Name,
				data.File, ErrScale, data.Shape[1])
		}
		return m.fp4(data, scale, data.Shape[1])
	case d == I8 && floatScale(scale) && strings.HasSuffix(scale.Name, "weight_scale"):
		return m.int8(data, scale)
	case d == I8 || d == U8:
		cols := 2 * data.Shape[1]
		if cols < 0 { // only possible with 0 rows
			return Matrix{}, fmt.Errorf("weight: matrix %q in %s: %w: shape %s is too wide for packed FP4", data.Name,
				data.File, ErrScale, shapeText(data.Shape))
		}
		return m.fp4(data, scale, cols)
	}
	return Matrix{}, fmt.Errorf("weight: matrix %q in %s: %w %s; a matrix is F32, F16, BF16, F8_E4M3 with a scale, "+
		"FP4 (F4, I8, U8) with a scale, or integers with a scale (I8, weight_packed, qweight)",
		data.Name, data.File, ErrDType, data.DType)
}

// unused marks the scales of static activations as read. Products with floating-point rows do not need them.
func (m *module) unused(names ...string) {
	for _, name := range names {
		m.part("." + name)
	}
}

// scale returns the scale tensor of a weight, or nil if there is none. Two scale tensors are an error.
func (m *module) scale(data *Tensor) (*Tensor, error) {
	var found *Tensor
	for _, name := range scaleNames(data.Name) {
		t := m.tensor(name)
		if t == nil {
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

// scaleNames lists the names a scale of the weight may have: the Hugging Face spelling, the official spelling, and the
// names of modelopt and compressed-tensors.
func scaleNames(name string) []string {
	names := []string{name + "_scale_inv"}
	if stem, ok := strings.CutSuffix(name, ".weight"); ok {
		names = append(names, stem+".scale", name+"_scale")
	}
	return names
}

// floatScale reports whether a scale is given whose type is a float of 16 or 32 bits.
func floatScale(t *Tensor) bool {
	return t != nil && (t.DType == F32 || t.DType == BF16 || t.DType == F16)
}

// rowBytes returns the size of a row of a tensor [rows, columns].
func rowBytes(t *Tensor) int {
	if f, ok := t.DType.Block(); ok {
		return t.Shape[1] / f.Values() * f.Bytes()
	}
	return int(int64(t.Shape[1]) * int64(t.DType.Bits()) / 8)
}

// shaped returns a tensor's bytes with another shape of as many elements.
func shaped(t *Tensor, shape ...int) *Tensor {
	out := *t
	out.Shape = shape
	return &out
}

// blocks returns ceil(n/size), without overflow for any n >= 0.
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

// missingScale returns the error for a quantised matrix without the scale that its values need.
func missingScale(data *Tensor, names ...string) error {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = fmt.Sprintf("%q", n)
	}
	return fmt.Errorf("weight: matrix %q in %s: %w: %s of shape %s needs block scales, but neither %s is in the "+
		"checkpoint", data.Name, data.File, ErrScale, data.DType, shapeText(data.Shape), strings.Join(quoted, " nor "))
}
