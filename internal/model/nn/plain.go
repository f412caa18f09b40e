package nn

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"sparrow/kernel"
	"sparrow/weight"
)

// find returns the tensor with the given name, after checking that it has exactly the given shape.
func (l *Loader) find(name string, shape ...int) (*weight.Tensor, bool) {
	l.use(name)
	t, ok := l.from.Tensor(name)
	switch {
	case !ok:
		l.addProblem("missing %s, want shape %v", name, shape)
		return nil, false
	case !slices.Equal(t.Shape, shape):
		l.addProblem("%s has shape %v, want %v", name, t.Shape, shape)
		return nil, false
	}
	return t, true
}

// Floats loads a small matrix [rows, cols] of floats without scales, converted to float32.
func (l *Loader) Floats(name string, rows, cols int) kernel.Tensor {
	t, ok := l.find(name, rows, cols)
	if !ok {
		return kernel.Tensor{}
	}
	return widenedTensor(l, t, rows, cols)
}

// Channels loads the weights of several convolutions over channels, [n, 1, taps] each. The result is one float32 tensor
// [number of names * n, taps].
func (l *Loader) Channels(names []string, n, taps int) kernel.Tensor {
	var all []float32
	for _, name := range names {
		t, ok := l.find(name, n, 1, taps)
		if !ok {
			return kernel.Tensor{}
		}
		all = append(all, readValues(l, t, n*taps)...)
	}
	return floatTensor(l, all, len(names)*n, taps)
}

// Indices loads a matrix [rows, cols] of integers in [0, limit).
func (l *Loader) Indices(name string, rows, cols, limit int) kernel.Tensor {
	t, ok := l.find(name, rows, cols)
	if !ok {
		return kernel.Tensor{}
	}
	v, err := indices(t, limit)
	if err != nil {
		l.addProblem("%v", err)
		return kernel.Tensor{}
	}
	if i := slices.IndexFunc(v, func(x int32) bool { return x < 0 || int(x) >= limit }); i >= 0 {
		l.addProblem("%s[%d][%d] is %d, want 0 to %d", name, i/cols, i%cols, v[i], limit-1)
		return kernel.Tensor{}
	}
	out, err := kernel.New(l.dev, kernel.I32, rows, cols)
	if err == nil {
		err = kernel.WriteI32(l.dev, out, v)
	}
	if err != nil {
		l.fail(fmt.Errorf("%s: %w", name, err))
	}
	return out
}

// indices reads a matrix of integers. Random integers are below limit and all different within a row.
func indices(t *weight.Tensor, limit int) ([]int32, error) {
	if t.Drawn == nil {
		return weight.ReadI32(t)
	}
	cols := t.Shape[1]
	if cols > limit {
		return nil, fmt.Errorf("%s: rows have %d columns, but only %d distinct values can be drawn for a row", t.Name,
			cols, limit)
	}
	random := rand.New(rand.NewPCG(t.Drawn.Seed, 0))
	v := make([]int32, 0, t.Shape[0]*cols)
	for range t.Shape[0] {
		for first := len(v); len(v) < first+cols; {
			if x := random.Int32N(int32(limit)); !slices.Contains(v[first:], x) {
				v = append(v, x)
			}
		}
	}
	return v, nil
}

// Stack loads a tensor [n, out, in] of floats without scales as n weights, which are views of its memory.
func (l *Loader) Stack(name string, n, out, in int) []kernel.Weight {
	list := make([]kernel.Weight, n)
	t, ok := l.find(name, n, out, in)
	if !ok {
		return list
	}
	kind := valueType(t.DType)
	if kind != kernel.F32 && kind != kernel.BF16 && kind != kernel.F16 {
		l.addProblem("%s is %v; a stack of matrices must be F32, F16 or BF16", name, t.DType)
		return list
	}
	all := view(t.Data, kind, n*out, in)
	for i := range list {
		list[i] = kernel.Weight{Data: all.Slice(i*out, (i+1)*out)}
	}
	return list
}

// AddProblem adds a problem that the model's family has found.
func (l *Loader) AddProblem(problem string) { l.problems = append(l.problems, problem) }
