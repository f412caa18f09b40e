// Package nn has the parts that all model families use: loading of weights by name, and feed-forward blocks.
//
// The inputs are a checkpoint and a device; the outputs are weights that the device has prepared, and blocks that call
// the operations of package kernel. The package never reads the elements of a tensor on a device.
package nn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"sparrow/internal/model/placement"
	"sparrow/kernel"
	"sparrow/weight"
)

// ErrTensors is wrapped if the tensors of a checkpoint do not match its config.
var ErrTensors = errors.New("the checkpoint's tensors do not fit its configuration")

// TensorError lists all problems of the tensors of a checkpoint as sorted sentences: missing tensors, wrong shapes and
// types, and superfluous tensors. It wraps ErrTensors.
type TensorError struct{ Problems []string }

// Error lists the first problems.
func (e *TensorError) Error() string {
	return fmt.Sprintf("%v: %s", ErrTensors, e.First(200))
}

// First returns the number of problems and at most `most` problems, one in a line.
func (e *TensorError) First(most int) string {
	n, number := len(e.Problems), "1 problem"
	if n != 1 {
		number = fmt.Sprintf("%d problems", n)
	}
	text := number + ":\n  " + strings.Join(e.Problems[:min(n, most)], "\n  ")
	if n > most {
		text += fmt.Sprintf("\n  and %d more", n-most)
	}
	return text
}

func (e *TensorError) Unwrap() error { return ErrTensors }

// Loader reads tensors of a checkpoint by name and shape. It collects all problems, which Finish returns.
type Loader struct {
	// Pow2Rows is the value of kernel.Weight.Pow2Rows for every weight that is loaded.
	Pow2Rows bool
	// Ranks states which shards of weights are loaded if several ranks share a model.
	Ranks kernel.Member
	// Placement states where experts are stored; nil if all are on the device. Host computes the experts of the CPU.
	Placement *placement.Placement
	Host      ExpertHost
	// Movable means that experts may move between device and host memory after loading.
	Movable bool
	// Described means that only types and shapes of weights are checked.
	Described bool

	from     *weight.Checkpoint
	dev      Device
	groups   int // number of groups of heads during a call of Heads; else 0
	used     map[string]bool
	problems []string
	skipped  []string
	err      error           // error of the device, not of the checkpoint
	failed   map[string]bool // texts of the errors in err
	onTensor func(name string)
	patterns map[patternOf][]byte   // stored patterns of random packed values
	homes    map[int]kernel.Experts // experts of each layer that has any
	empty    []byte                 // zero bytes, used for matrices that are not read
}

// patternOf is an element type with a distribution. Tensors with the same type and distribution repeat the same
// pattern.
type patternOf struct {
	dtype  kernel.DType
	values kernel.Drawn
}

// Device holds the methods of a device that a loader needs.
type Device interface {
	kernel.Memory
	kernel.Preparer
}

// ExpertHost prepares the experts that the CPU computes, layer by layer.
type ExpertHost interface {
	Prepare(layer int, w kernel.ExpertWeights) (kernel.HostExperts, error)
}

// NewLoader returns a loader from a checkpoint to a device. onTensor, if not nil, is called once for each tensor, for
// progress bars.
func NewLoader(from *weight.Checkpoint, dev Device, onTensor func(name string)) *Loader {
	l := &Loader{from: from, dev: dev, used: map[string]bool{}, failed: map[string]bool{},
		onTensor: onTensor, homes: map[int]kernel.Experts{}}
	if d, ok := dev.(kernel.BulkLoader); ok {
		l.fail(d.BeginLoad())
	}
	return l
}

func (l *Loader) addProblem(format string, args ...any) {
	l.problems = append(l.problems, fmt.Sprintf(format, args...))
}

// fail records an error of the device. The same refusal of a weight type for many tensors is recorded once.
func (l *Loader) fail(err error) {
	if err != nil && !l.failed[err.Error()] {
		l.failed[err.Error()] = true
		l.err = errors.Join(l.err, err)
	}
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

// HasPrefix reports whether the checkpoint has a tensor whose name begins with prefix.
func (l *Loader) HasPrefix(prefix string) bool {
	return slices.ContainsFunc(l.from.Names(), func(name string) bool { return strings.HasPrefix(name, prefix) })
}

// Matrix loads a weight [out, in] that multiplies rows.
func (l *Loader) Matrix(name string, out, in int) kernel.Matrix {
	return l.prepare(l.Weight(name, out, in), kernel.Projected)
}

// table loads a rank's rows of a table. Its values must be floats without scales, because lookups apply no scales.
func (l *Loader) table(name string, rows, cols int, role kernel.Role) kernel.Matrix {
	w := l.rows(name, rows, cols)
	if w.Scale.Given() {
		l.addProblem("%s is %v with scales; a table must be F32, F16 or BF16", name, w.Data.DType)
		return nil
	}
	return l.prepare(w, role)
}

// Bands loads a matrix [n*out, in] as n matrices [out, in] that multiply rows: the matrices of a rank.
func (l *Loader) Bands(name string, n, out, in int) []kernel.Matrix {
	w := l.rows(name, n*out, in)
	if w.Scale.Given() && out%w.BlockRows != 0 {
		l.addProblem("%s has blocks of %d rows, which do not divide groups of %d rows", name, w.BlockRows, out)
		return nil
	}
	if !w.Data.Given() {
		return nil
	}
	list := make([]kernel.Matrix, paddedRows(l, n)/l.Ranks.Count())
	for i := range list {
		list[i] = l.prepare(w.Slice(i*out, (i+1)*out), kernel.Projected)
	}
	return list
}

// Experts prepares a rank's part of the matrices of a layer's experts, each in the memory of its placement. If one of
// them is missing, it returns none.
func (l *Loader) Experts(layer int, w kernel.ExpertWeights) kernel.Experts {
	for _, list := range [][]kernel.Weight{w.Gate, w.Up, w.Down} {
		if slices.ContainsFunc(list, func(w kernel.Weight) bool { return !w.Data.Given() }) {
			return nil
		}
	}
	if n, ranks := len(w.Gate), l.Ranks.Count(); n%ranks != 0 {
		l.addProblem("%d experts of a layer do not divide among %d ranks; %s", n, ranks, supported(n, func(k int) bool {
			return n%k == 0
		}))
		return nil
	}
	first, last := l.Ranks.Share(len(w.Gate))
	w.Gate, w.Up, w.Down = w.Gate[first:last], w.Up[first:last], w.Down[first:last]
	if !drawsValues(l.dev) {
		l.fail(w.OnHost(func(bytes int64) (kernel.HostBuffer, error) { return make(kernel.HostBuffer, bytes), nil }))
	}
	err := l.place(layer, &w)
	var x kernel.Experts
	if err == nil {
		x, err = l.dev.PrepareExperts(w)
	}
	l.homes[layer] = x
	l.fail(err)
	return x
}

// place sets the methods of experts and prepares those that the host computes.
func (l *Loader) place(layer int, w *kernel.ExpertWeights) (err error) {
	w.Methods = l.Placement.Layer(layer)
	if !w.Split() {
		return nil
	}
	if n := l.Ranks.Count(); n > 1 {
		return fmt.Errorf("%w: layer %d has experts in two memories on %d ranks, want one rank",
			kernel.ErrUnsupported, layer, n)
	}
	if l.Host == nil {
		return fmt.Errorf("%w: layer %d has experts in host memory, but no device of the host computes them",
			kernel.ErrArgument, layer)
	}
	w.Movable, w.Shared = l.Movable, l.Placement.Shared
	w.Host, err = l.Host.Prepare(layer, *w)
	return err
}

// prepare passes a weight to the device. For a missing weight it does nothing.
func (l *Loader) prepare(w kernel.Weight, role kernel.Role) kernel.Matrix {
	if !w.Data.Given() {
		return nil
	}
	m, err := l.dev.Prepare(w, role)
	l.fail(err)
	return m
}

// Weight returns a weight [out, in] with its block scales, as stored in the checkpoint.
func (l *Loader) Weight(name string, out, in int) kernel.Weight {
	m, ok := l.matrix(name, out, in)
	if !ok {
		return kernel.Weight{}
	}
	w := kernel.Weight{BlockRows: m.BlockRows, BlockCols: m.BlockCols, Factor: m.Factor, Pow2Rows: l.Pow2Rows}
	d := valueType(m.Values)
	_, blocks := d.Block()
	switch {
	case d == kernel.E2M1x2 && m.Scale.DType == weight.F32:
		l.addProblem("%s has F32 scales; packed FP4 must have F8_E8M0 or U8 scales", m.Data.Name)
		return kernel.Weight{}
	case d == kernel.E2M1x2 || (d == kernel.U4x2 || blocks) && m.Data.Drawn != nil:
		w.Data = l.packed(m.Data, d, out, in/d.Values())
	default:
		w.Data = l.values(m.Data, d, out, in/d.Values())
		if m.Data.Drawn == nil { // rows of integers may be padded
			w.Data.Stride = m.RowBytes / d.Size()
		}
	}
	if m.Scale != nil {
		w.Scale = l.scales(m)
	}
	if m.Zero != nil {
		w.Zero = view(m.Zero.Data, kernel.U8, m.Zero.Shape[0], m.Zero.Shape[1])
	}
	return w
}

// values returns a tensor's values as a matrix: the checkpoint's bytes, or random values that the device generates
// if it can.
func (l *Loader) values(t *weight.Tensor, d kernel.DType, rows, cols int) kernel.Tensor {
	v := view(t.Data, d, rows, cols)
	if t.Drawn == nil {
		return v
	}
	x := drawn(t)
	x.Bytes = v.Extent()
	if v.Buf = x; drawsValues(l.dev) {
		return v
	}
	v, err := x.OnHost(v)
	l.fail(err)
	return v
}

// packed returns the bytes of a tensor of packed four-bit values, of their scales, or of blocks: those of the
// checkpoint or, for random weights, a repeated pattern (patternOf).
func (l *Loader) packed(t *weight.Tensor, d kernel.DType, rows, cols int) kernel.Tensor {
	v := view(t.Data, d, rows, cols)
	if t.Drawn == nil {
		return v
	}
	x := patternOf{d, kernel.Drawn{Mean: t.Drawn.Mean, Spread: t.Drawn.Spread}}
	pattern, ok := l.patterns[x]
	if !ok {
		var err error
		pattern, err = kernel.Pattern(d, x.values)
		l.fail(err)
		if l.patterns == nil {
			l.patterns = map[patternOf][]byte{}
		}
		l.patterns[x] = pattern
	}
	v.Buf = kernel.From(pattern, d, t.Drawn.Seed, v.Extent())
	return v
}

// drawsValues reports whether the device can generate random values.
func drawsValues(dev Device) bool {
	_, ok := dev.(kernel.Drawer)
	return ok
}

func drawn(t *weight.Tensor) kernel.Drawn {
	return kernel.Drawn{Seed: t.Drawn.Seed, Mean: t.Drawn.Mean, Spread: t.Drawn.Spread}
}

// matrix returns a weight of the checkpoint, after checking its shape.
func (l *Loader) matrix(name string, out, in int) (weight.Matrix, bool) {
	if !l.from.HasMatrix(name) {
		l.use(name)
		l.addProblem("missing %s, want shape [%d %d]", name, out, in)
		return weight.Matrix{}, false
	}
	m, err := l.from.Matrix(name)
	for _, part := range m.Parts {
		l.use(part)
	}
	if err != nil {
		l.addProblem("%v", err)
		return weight.Matrix{}, false
	}
	if m.Rows != out || m.Cols != in {
		l.addProblem("%s has shape [%d %d], want [%d %d], in %s", m.Data.Name, m.Rows, m.Cols, out, in,
			filepath.Base(m.Data.File))
		return weight.Matrix{}, false
	}
	if valueType(m.Values) == 0 {
		l.addProblem("%s is %v; want F32, F16, BF16, a block format, integers, or F8_E4M3 or FP4 with scales",
			m.Data.Name, m.Values)
		return weight.Matrix{}, false
	}
	if err := arrangeMatrix(l, &m); err != nil {
		l.addProblem("%v", err)
		return weight.Matrix{}, false
	}
	return m, true
}

// arrangeMatrix converts a matrix that is stored in another order. If weights are only described, all such matrices use
// the same zero bytes.
func arrangeMatrix(l *Loader, m *weight.Matrix) error {
	switch {
	case !l.Described:
		return m.Arrange()
	case !m.Reordered():
		return nil
	}
	empty := func(t *weight.Tensor, n int) {
		if len(l.empty) < n {
			l.empty = make([]byte, n)
		}
		t.Data = l.empty[:n]
	}
	empty(m.Data, m.Rows*m.RowBytes)
	empty(m.Scale, m.Scale.Elements()*m.Scale.DType.Size())
	return nil
}

func (l *Loader) vector(name string, n int) (*weight.Tensor, bool) {
	l.use(name)
	t, ok := l.from.Tensor(name)
	switch {
	case !ok:
		l.addProblem("missing %s, want shape [%d]", name, n)
	case len(t.Shape) != 1 || t.Shape[0] != n:
		l.addProblem("%s has shape %v, want [%d], in %s", name, t.Shape, n, filepath.Base(t.File))
	case t.DType != weight.F32 && t.DType != weight.BF16 && t.DType != weight.F16:
		l.addProblem("%s is %v, want F32, BF16 or F16", name, t.DType)
	default:
		return t, true
	}
	return nil, false
}

// Vector loads a vector of n values, converted to float32, such as norms and biases, which are small.
func (l *Loader) Vector(name string, n int) kernel.Tensor {
	t, ok := l.vector(name, n)
	if !ok {
		return kernel.Tensor{}
	}
	return widenedTensor(l, t, 1, n)
}

// widenedTensor returns a copy of a tensor of floats without scales as float32.
func widenedTensor(l *Loader, t *weight.Tensor, rows, cols int) kernel.Tensor {
	return floatTensor(l, readValues(l, t, rows*cols), rows, cols)
}

// readValues returns the n values of a tensor of floats without scales.
func readValues(l *Loader, t *weight.Tensor, n int) []float32 {
	v := make([]float32, n)
	if t.Drawn != nil {
		for i := range v {
			v[i] = drawn(t).Value(int64(i))
		}
		return v
	}
	got, err := weight.ReadF32(t)
	if err != nil {
		l.addProblem("%v", err)
		return v
	}
	return got
}

// scales returns the scales of a matrix: scales of groups of a row in the type of the checkpoint, other scales as
// float32.
func (l *Loader) scales(m weight.Matrix) kernel.Tensor {
	t := m.Scale
	rows, cols := t.Shape[0], t.Shape[1]
	switch {
	case m.Values == weight.F4E2M1x2 && t.DType == weight.F8E4M3:
		return view(t.Data, kernel.E4M3, rows, cols)
	case m.Values == weight.F4E2M1x2:
		return l.packed(t, kernel.E8M0, rows, cols)
	case m.Values == weight.U4x2 && t.Drawn != nil:
		return l.packed(t, valueType(t.DType), rows, cols)
	case m.Values != weight.F8E4M3:
		return view(t.Data, valueType(t.DType), rows, cols)
	case t.DType == weight.F32 || t.Drawn != nil:
		return l.values(t, kernel.F32, rows, cols)
	}
	values, err := m.Scales()
	if err != nil {
		l.addProblem("%v", err)
		return kernel.Tensor{}
	}
	v := make([]byte, 0, 4*len(values))
	for _, x := range values {
		v = binary.NativeEndian.AppendUint32(v, math.Float32bits(x))
	}
	return view(v, kernel.F32, rows, cols)
}

func floatTensor(l *Loader, v []float32, rows, cols int) kernel.Tensor {
	t, err := kernel.New(l.dev, kernel.F32, rows, cols)
	if err == nil {
		err = kernel.WriteF32(l.dev, t, v)
	}
	l.fail(err)
	return t
}

// view returns a checkpoint's bytes as a matrix.
func view(data []byte, d kernel.DType, rows, cols int) kernel.Tensor {
	return kernel.Tensor{Buf: kernel.HostBuffer(data), DType: d, Rows: rows, Cols: cols, Stride: cols}
}

func valueType(d weight.DType) kernel.DType {
	if f, ok := d.Block(); ok {
		return kernel.Blocks(f)
	}
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
	case weight.U4x2:
		return kernel.U4x2
	case weight.U8:
		return kernel.U8
	case weight.I8:
		return kernel.I8
	}
	return 0
}

// Join reports whether the device can multiply by joined matrices. If so, it calls tell, which passes the groups of
// matrices to the device.
func (l *Loader) Join(tell func(kernel.Joiner) error) bool {
	j, ok := l.dev.(kernel.Joiner)
	if ok && l.err == nil && len(l.problems) == 0 {
		l.fail(tell(j))
	}
	return ok
}

// Finish ends the load. It returns a TensorError if tensors are missing, have wrong shapes or are superfluous. Known
// tensors that the text network does not use are skipped (Skipped).
func (l *Loader) Finish() error {
	if d, ok := l.dev.(kernel.BulkLoader); ok {
		l.fail(d.EndLoad())
	}
	if l.err != nil {
		return fmt.Errorf("load: %w", l.err)
	}
	checkSuperfluous(l)
	if len(l.problems) == 0 {
		return nil
	}
	slices.Sort(l.problems)
	return fmt.Errorf("load: %w", &TensorError{l.problems})
}
