package weight

import (
	"fmt"
	"strings"
)

// Matrix is a weight of Rows outputs and Cols inputs, with its scales. The value of an element is
//
//	W[r, c] = (value(Data, r, c) - zero) * (scale * Factor)
//
// where scale and zero are those of the block in row r/BlockRows and column c/BlockCols (integer divisions). The last
// blocks may be incomplete. Scales are factors even if their name ends in "_inv".
type Matrix struct {
	Data *Tensor
	// Scale has shape [ceil(Rows/BlockRows), ceil(Cols/BlockCols)] and type F32, BF16, F16, F8_E4M3, F8_E8M0, or U8
	// with e8m0 bytes. It is nil if there are no scales.
	Scale *Tensor
	// Zero holds the zero points of integers as U8, in the shape of Scale. If it is nil, zero points are 8 for U4x2,
	// 128 for U8, and 0 for other types.
	Zero   *Tensor
	Factor float32 // factor of all scales; 0 means none

	BlockRows, BlockCols int // rows and columns per scale; 0 without scales

	Rows, Cols int // in values; if values are packed, the shape of Data counts bytes or words
	// Values is the type of the values in Data: F32, BF16, F16, a block format, F8E4M3, F4E2M1x2 (even if Data.DType is
	// I8 or U8), U4x2, U8 or I8.
	Values   DType
	RowBytes int // distance of rows in Data, in bytes

	Parts []string // names of all tensors of the matrix, including unused ones

	// arrange is called by Arrange; nil if there is nothing to do, or after it was called.
	arrange func(m *Matrix) error
}

// Reordered reports whether the matrix is not stored by rows, so that Data, Scale and Zero are empty before
// [Matrix.Arrange].
func (m *Matrix) Reordered() bool { return m.Data.Data == nil && m.Data.Drawn == nil }

// Arrange prepares a matrix for reading. A matrix that is not stored by rows is copied to new memory, and its file
// pages are dropped. NaN and infinite scales are an error. NVFP4 matrices that were converted exactly from MXFP4 are
// converted back.
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

// stores holds the endings of names of tensors with the values of a matrix.
var stores = []string{".weight", ".weight_packed", ".qweight"}

// HasMatrix reports whether there is a matrix with the given name, in any format.
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

// Matrix returns the weight with a name such as "X.weight", which may be stored as "X.weight" with separate scales, as
// "X.weight_packed" or as "X.qweight". The format is determined from the existing tensors, their types and shapes, and
// from [Checkpoint.Scheme]. Inconsistent tensors are an error: two formats, FP8 or FP4 without scales, other floats
// with scales, two scales, or a scale of the wrong shape or dtype.
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
	named bool     // whether the name ends in .weight; with other names only FP8 is supported
	parts []string // names of the tensors that were used
}

// part returns the tensor of the module with a name ending, or nil.
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

// values returns the tensor with the values of the matrix.
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
			return nil, fmt.Errorf("weight: matrix %q: %w: both %q and %q have its values; want one of them", m.name,
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

// read reads the matrix in the format of the tensor with the values.
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
				"values of this type need no scale, but the checkpoint has one; want a checkpoint without it")
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
		if cols < 0 { // possible only with 0 rows
			return Matrix{}, fmt.Errorf("weight: matrix %q in %s: %w: shape %s is too wide for packed FP4", data.Name,
				data.File, ErrScale, shapeText(data.Shape))
		}
		return m.fp4(data, scale, cols)
	}
	return Matrix{}, fmt.Errorf("weight: matrix %q in %s: %w %s; a matrix is F32, F16, BF16, F8_E4M3 with a scale, "+
		"FP4 (F4, I8, U8) with a scale, or integers with a scale (I8, weight_packed, qweight)",
		data.Name, data.File, ErrDType, data.DType)
}

// unused adds the names of tensors that are not needed, such as scales of static activations.
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
				fmt.Sprintf("there is a second scale, %q in %s; want one scale", t.Name, t.File))
		}
		found = t
	}
	return found, nil
}

// scaleNames returns the possible names of a weight's scale: those of Hugging Face, of DeepSeek, of modelopt and of
// compressed-tensors.
func scaleNames(name string) []string {
	names := []string{name + "_scale_inv"}
	if stem, ok := strings.CutSuffix(name, ".weight"); ok {
		names = append(names, stem+".scale", name+"_scale")
	}
	return names
}

// floatScale reports whether a scale exists and is a float of 16 or 32 bits.
func floatScale(t *Tensor) bool {
	return t != nil && (t.DType == F32 || t.DType == BF16 || t.DType == F16)
}

// rowBytes returns the bytes of a row of a tensor [rows, columns].
func rowBytes(t *Tensor) int {
	if f, ok := t.DType.Block(); ok {
		return t.Shape[1] / f.Values() * f.Bytes()
	}
	return int(int64(t.Shape[1]) * int64(t.DType.Bits()) / 8)
}

// shaped returns a tensor with the same data and another shape.
func shaped(t *Tensor, shape ...int) *Tensor {
	out := *t
	out.Shape = shape
	return &out
}

// blocks returns ceil(n/size) for n >= 0, without overflow.
func blocks(n, size int) int {
	if n == 0 {
		return 0
	}
	return (n-1)/size + 1
}

// scaleError returns an error that names both tensors with file, dtype and shape.
func scaleError(data, scale *Tensor, reason string) error {
	return fmt.Errorf("weight: matrix %q (%s %s in %s) with scale %q (%s %s in %s): %w: %s",
		data.Name, data.DType, shapeText(data.Shape), data.File,
		scale.Name, scale.DType, shapeText(scale.Shape), scale.File, ErrScale, reason)
}

// missingScale returns the error for a quantised matrix without scales.
func missingScale(data *Tensor, names ...string) error {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = fmt.Sprintf("%q", n)
	}
	return fmt.Errorf("weight: matrix %q in %s: %w: %s of shape %s needs block scales, but neither %s is in the "+
		"checkpoint", data.Name, data.File, ErrScale, data.DType, shapeText(data.Shape), strings.Join(quoted, " nor "))
}
