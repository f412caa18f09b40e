package nn

import (
	"bytes"
	"strings"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/weight"
)

// HostTable returns a table [rows, dim] whose rows are looked up by number. It is a view of the mapped checkpoint.
// Values are floats without scales, or F8_E4M3 with an F8_E8M0 for every 32 values of a row, in the tensor whose name
// ends with scale instead of weight.
func (l *Loader) HostTable(name string, rows, dim int) *kernel.Table {
	out := l.hostTable(name, rows, dim)
	if d, ok := l.dev.(kernel.TableReading); ok && out != nil && out.Values.Given() {
		l.fail(d.Tables().Prepare(out))
	}
	return out
}

func (l *Loader) hostTable(name string, rows, dim int) *kernel.Table {
	t, ok := l.find(name, rows, dim)
	if !ok {
		return nil
	}
	out := &kernel.Table{Mapped: t.Drawn == nil}
	switch t.DType {
	case weight.F32, weight.BF16:
		out.Values = l.values(t, valueType(t.DType), rows, dim)
		return out
	case weight.F8E4M3:
	default:
		l.addProblem("%s is %v; a table of rows must be F32, BF16 or F8_E4M3", name, t.DType)
		return nil
	}
	scales := strings.TrimSuffix(name, ".weight") + ".scale"
	s, ok := l.find(scales, rows, dim/kernel.TableScale)
	if !ok {
		return nil
	}
	if s.DType != weight.F8E8M0 {
		l.addProblem("%s is %v, want F8_E8M0", scales, s.DType)
		return nil
	}
	if l.Described {
		return out
	}
	out.Values = l.values(t, kernel.E4M3, rows, dim)
	if s.Drawn == nil {
		out.Scales = view(s.Data, kernel.E8M0, rows, dim/kernel.TableScale)
		return out
	}
	filled := bytes.Repeat([]byte{num.E8M0(s.Drawn.Mean)}, rows*dim/kernel.TableScale)
	out.Scales = view(filled, kernel.E8M0, rows, dim/kernel.TableScale)
	return out
}

// Product loads two tensors of floats without scales, [rows, cols], and returns their element-wise product.
func (l *Loader) Product(a, b string, rows, cols int) kernel.Tensor {
	var values [2][]float32
	for i, name := range [...]string{a, b} {
		t, ok := l.find(name, rows, cols)
		if !ok {
			return kernel.Tensor{}
		}
		if t.DType != weight.F32 && t.DType != weight.BF16 && t.DType != weight.F16 {
			l.addProblem("%s is %v, want F32, BF16 or F16", name, t.DType)
			return kernel.Tensor{}
		}
		values[i] = readValues(l, t, rows*cols)
	}
	for i, v := range values[1] {
		values[0][i] *= v
	}
	return floatTensor(l, values[0], rows, cols)
}

// Zeros returns a float32 tensor of zeros, instead of a bias that the checkpoint does not have.
func (l *Loader) Zeros(rows, cols int) kernel.Tensor {
	t, err := kernel.New(l.dev, kernel.F32, rows, cols)
	l.fail(err)
	return t
}

// Prefixes returns a function that accepts names with one of the given prefixes.
func Prefixes(begins ...string) func(string) bool { return prefixes(begins...) }

// Suffixes returns a function that accepts names with one of the given suffixes.
func Suffixes(ends ...string) func(string) bool { return suffixes(ends...) }
