// Package nn holds what every model family shares: loading of named weights, and the blocks made of them.
//
// A checkpoint and a device flow in; out flow weights in the device's memory and blocks that call the operations of package kernel.
// The package never looks inside a tensor that lives on a device.
package nn

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/weight"
)

// ErrTensors is wrapped when the tensors of a checkpoint do not fit its config.
var ErrTensors = errors.New("the checkpoint's tensors do not fit its config.json")

// Loader takes tensors out of a checkpoint by name and shape. It never stops at the first problem: Finish reports all of them.
type Loader struct {
	from     *weight.Checkpoint
	mem      kernel.Memory
	used     map[string]bool
	problems []string
	err      error // of the device, not of the checkpoint
	onTensor func(name string)
}

// NewLoader reads from a checkpoint into a device's memory. onTensor, when not nil, is called once per tensor, for progress bars.
func NewLoader(from *weight.Checkpoint, mem kernel.Memory, onTensor func(name string)) *Loader {
	return &Loader{from: from, mem: mem, used: map[string]bool{}, onTensor: onTensor}
}

func (l *Loader) complain(format string, args ...any) {
	l.problems = append(l.problems, fmt.Sprintf(format, args...))
}

func (l *Loader) use(name string) {
	l.used[name] = true
	if l.onTensor != nil {
		l.onTensor(name)
	}
}

// Has reports whether the checkpoint holds a tensor.
func (l *Loader) Has(name string) bool {
	_, ok := l.from.Tensor(name)
	return ok
}

// HasPrefix reports whether the checkpoint holds a tensor whose name begins so.
func (l *Loader) HasPrefix(prefix string) bool {
	return slices.ContainsFunc(l.from.Names(), func(name string) bool { return strings.HasPrefix(name, prefix) })
}

// Matrix loads a weight [out, in] with its block scales.
func (l *Loader) Matrix(name string, out, in int) kernel.Weight {
	m, ok := l.matrix(name, out, in)
	if !ok {
		return kernel.Weight{}
	}
	w := kernel.Weight{BlockRows: m.BlockRows, BlockCols: m.BlockCols}
	if m.Values == weight.F4E2M1x2 {
		w.Data, w.Scale = l.place(m.Data.Data, kernel.E2M1x2, out, in/2), l.exponents(m)
		return w
	}
	w.Data = l.place(m.Data.Data, valueType(m.Values), out, in)
	if m.Scale != nil {
		w.Scale = l.scales(m)
	}
	return w
}

// Table loads a matrix [rows, cols] whose rows are looked up one by one. Lookups apply no scales, so it must hold plain floats.
func (l *Loader) Table(name string, rows, cols int) kernel.Weight {
	w := l.Matrix(name, rows, cols)
	if w.Scale.Given() {
		l.complain("%s is %v with scales, supported for a table are F32, F16 and BF16", name, w.Data.DType)
	}
	return w
}

// matrix finds a weight and checks its shape.
func (l *Loader) matrix(name string, out, in int) (weight.Matrix, bool) {
	l.use(name)
	if !l.Has(name) {
		l.complain("missing %s, want shape [%d %d]", name, out, in)
		return weight.Matrix{}, false
	}
	m, err := l.from.Matrix(name)
	if m.Scale != nil {
		l.use(m.Scale.Name)
	}
	if err != nil {
		l.complain("%v", err)
		return weight.Matrix{}, false
	}
	if m.Rows != out || m.Cols != in {
		l.complain("%s has shape [%d %d], want [%d %d]", name, m.Rows, m.Cols, out, in)
		return weight.Matrix{}, false
	}
	if valueType(m.Values) == 0 {
		l.complain("%s is %v, supported are F32, F16, BF16, and F8_E4M3 and FP4 with scales", name, m.Values)
		return weight.Matrix{}, false
	}
	return m, true
}

func (l *Loader) vector(name string, n int) (*weight.Tensor, bool) {
	l.use(name)
	t, ok := l.from.Tensor(name)
	switch {
	case !ok:
		l.complain("missing %s, want shape [%d]", name, n)
	case len(t.Shape) != 1 || t.Shape[0] != n:
		l.complain("%s has shape %v, want [%d]", name, t.Shape, n)
	case t.DType != weight.F32 && t.DType != weight.BF16 && t.DType != weight.F16:
		l.complain("%s is %v, supported are F32, BF16 and F16", name, t.DType)
	default:
		return t, true
	}
	return nil, false
}

// Vector loads a vector of n values, widened to float32: norms and biases are small and read by every row.
func (l *Loader) Vector(name string, n int) kernel.Tensor {
	t, ok := l.vector(name, n)
	if !ok {
		return kernel.Tensor{}
	}
	return l.widened(t, 1, n)
}

// widened copies a tensor of plain floats as float32.
func (l *Loader) widened(t *weight.Tensor, rows, cols int) kernel.Tensor {
	v, err := weight.ReadF32(t)
	if err != nil {
		l.complain("%v", err)
		return kernel.Tensor{}
	}
	return l.floats(v, rows, cols)
}

// scales loads block scales as float32, whatever the checkpoint stores.
func (l *Loader) scales(m weight.Matrix) kernel.Tensor {
	rows, cols := m.Scale.Shape[0], m.Scale.Shape[1]
	if m.Scale.DType == weight.F32 {
		return l.place(m.Scale.Data, kernel.F32, rows, cols)
	}
	v := make([]float32, len(m.Scale.Data))
	for i, b := range m.Scale.Data {
		v[i] = num.FromE8M0(b)
	}
	return l.floats(v, rows, cols)
}

func (l *Loader) floats(v []float32, rows, cols int) kernel.Tensor {
	t, err := kernel.New(l.mem, kernel.F32, rows, cols)
	if err == nil {
		err = kernel.WriteF32(l.mem, t, v)
	}
	l.err = errors.Join(l.err, err)
	return t
}

func (l *Loader) place(data []byte, d kernel.DType, rows, cols int) kernel.Tensor {
	b, err := l.mem.Import(data, d)
	l.err = errors.Join(l.err, err)
	return kernel.Tensor{Buf: b, DType: d, Rows: rows, Cols: cols, Stride: cols}
}

func valueType(d weight.DType) kernel.DType {
	switch d {
	case weight.F32:
		return kernel.F32
	case weight.BF16:
		return kernel.BF16
	case weight.F16:
		return kernel.F16
	case weight.F8E4M3:
		return kernel.E4M3
	case weight.F4E2M1x2:
		return kernel.E2M1x2
	}
	return 0
}

// Finish reports every missing, misshapen and superfluous tensor. Buffers some checkpoints carry along, such as rotary frequencies, are no
// weights and are passed over.
func (l *Loader) Finish() error {
	if l.err != nil {
		return fmt.Errorf("load: %w", l.err)
	}
	for _, name := range l.from.Names() {
		if !l.used[name] && !strings.HasSuffix(name, "rotary_emb.inv_freq") {
			t, _ := l.from.Tensor(name)
			l.complain("superfluous %s, shape %v", name, t.Shape)
		}
	}
	if len(l.problems) == 0 {
		return nil
	}
	slices.Sort(l.problems)
	const most = 200
	shown := l.problems[:min(len(l.problems), most)]
	text := "\n  " + strings.Join(shown, "\n  ")
	if n := len(l.problems) - len(shown); n > 0 {
		text += fmt.Sprintf("\n  and %d more", n)
	}
	return fmt.Errorf("load: %w: %d problems:%s", ErrTensors, len(l.problems), text)
}
