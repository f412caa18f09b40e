package calibrate

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"

	"sparrow/internal/device/host"
	"sparrow/kernel"
)

// Device computes on another device in host memory and adds up the squares of the inputs of every matrix. Experts are
// computed matrix by matrix, because the inputs of a down-projection exist only inside the operation.
type Device struct {
	kernel.Device
	inputs map[kernel.Matrix]*inputs
}

// inputs are the rows that a matrix has multiplied so far.
type inputs struct {
	matrix  []byte    // memory of the matrix, by which it is found in the checkpoint
	squares []float64 // [columns]: sums of squares
	rows    int
}

// On returns a device that computes on d, whose activations must be float32 in host memory.
func On(d kernel.Device) *Device {
	return &Device{Device: d, inputs: map[kernel.Matrix]*inputs{}}
}

// Prepare prepares a matrix on the inner device.
func (d *Device) Prepare(w kernel.Weight, role kernel.Role) (kernel.Matrix, error) {
	m, err := d.Device.Prepare(w, role)
	if err == nil {
		d.inputs[m] = &inputs{matrix: host.Bytes(w.Data), squares: make([]float64, m.In())}
	}
	return m, err
}

// experts are the matrices of experts, each prepared alone.
type experts struct{ gate, up, down []kernel.Matrix }

func (x *experts) Count() int  { return len(x.gate) }
func (x *experts) Hidden() int { return x.gate[0].In() }
func (x *experts) Inner() int  { return x.gate[0].Out() }

// PrepareExperts prepares every matrix of the experts alone.
func (d *Device) PrepareExperts(w kernel.ExpertWeights) (kernel.Experts, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	if w.Split() {
		return nil, fmt.Errorf("%w: calibrate: experts are in two memories; want all of them in host memory",
			kernel.ErrUnsupported)
	}
	var x experts
	for to, list := range map[*[]kernel.Matrix][]kernel.Weight{&x.gate: w.Gate, &x.up: w.Up, &x.down: w.Down} {
		for _, one := range list {
			m, err := d.Prepare(one, kernel.Projected)
			if err != nil {
				return nil, err
			}
			*to = append(*to, m)
		}
	}
	return &x, nil
}

// Do adds the inputs of an operation's matrices and computes the operation.
func (d *Device) Do(op kernel.Op) error {
	switch a := op.(type) {
	case kernel.ExpertArgs:
		return d.experts(a)
	case kernel.MultiplyArgs:
		d.add(a.W, a.X)
	case kernel.ProjectArgs:
		for _, to := range a.To {
			d.add(to.W, a.X)
		}
	}
	return d.Device.Do(op)
}

// add adds the squares of rows that a matrix multiplies.
func (d *Device) add(m kernel.Matrix, x kernel.Tensor) {
	in := d.inputs[m]
	for r := range x.Rows {
		for i, v := range host.RowF32(x, r) {
			in.squares[i] += float64(v) * float64(v)
		}
	}
	in.rows += x.Rows
}

// experts computes the chosen experts one after the other, each for all of its rows.
func (d *Device) experts(a kernel.ExpertArgs) error {
	x, ok := a.Experts.(*experts)
	if !ok {
		return fmt.Errorf("%w: calibrate: the experts were prepared by another device", kernel.ErrArgument)
	}
	chosen := make([][]choice, x.Count())
	for t := range a.IDs.Rows {
		weights := host.RowF32(a.Weights, t)
		for j, id := range host.RowI32(a.IDs, t) {
			if !a.Part.Valid(int(id), x.Count()) {
				return fmt.Errorf("%w: calibrate: row %d chose expert %d of %d", kernel.ErrArgument, t, id, x.Count())
			}
			if e, here := a.Part.Local(int(id), x.Count()); here {
				chosen[e] = append(chosen[e], choice{t, weights[j]})
			}
		}
	}
	for e, rows := range chosen {
		if err := d.expert(a, x, e, rows); err != nil {
			return err
		}
	}
	return nil
}

// choice is a row that chose an expert, and the weight of the expert's results for it.
type choice struct {
	row    int
	weight float32
}

// expert adds the weighted results of one expert to the rows that chose it.
func (d *Device) expert(a kernel.ExpertArgs, x *experts, e int, chosen []choice) error {
	n := len(chosen)
	if n == 0 {
		return nil
	}
	in, gate, up, out := floats(n, a.X.Cols), floats(n, x.Inner()), floats(n, x.Inner()), floats(n, a.Out.Cols)
	for i, c := range chosen {
		copy(host.RowF32(in, i), host.RowF32(a.X, c.row))
	}
	for _, op := range []kernel.Op{
		kernel.MultiplyArgs{Out: gate, X: in, W: x.gate[e]}, kernel.MultiplyArgs{Out: up, X: in, W: x.up[e]},
		kernel.GateArgs{Out: gate, Gate: gate, Up: up, Limit: a.Limit},
		kernel.MultiplyArgs{Out: out, X: gate, W: x.down[e]},
	} {
		if err := kernel.Do(d, op); err != nil {
			return err
		}
	}
	for i, c := range chosen {
		to := host.RowF32(a.Out, c.row)
		for j, v := range host.RowF32(out, i) {
			to[j] += c.weight * v
		}
	}
	return nil
}

// floats returns a tensor of zeros in host memory.
func floats(rows, cols int) kernel.Tensor {
	buf, _ := host.Memory{}.Alloc(4 * int64(rows) * int64(cols)) // allocating host memory cannot fail
	return kernel.Tensor{Buf: buf, DType: kernel.F32, Rows: rows, Cols: cols, Stride: cols}
}

// MeanSquares returns a function that finds, by the memory of a matrix of the checkpoint, the mean squares of its
// inputs; nil if the matrix multiplied nothing. Parts of a matrix that were prepared alone, such as the groups of an
// output projection, are taken together.
func (d *Device) MeanSquares() func(matrix []byte) []float32 {
	var all []*inputs
	for _, in := range d.inputs {
		if in.rows > 0 && len(in.matrix) > 0 {
			all = append(all, in)
		}
	}
	slices.SortFunc(all, func(a, b *inputs) int { return cmp.Compare(place(a.matrix), place(b.matrix)) })
	return func(matrix []byte) []float32 {
		if len(matrix) == 0 {
			return nil
		}
		first, end := place(matrix), place(matrix)+uintptr(len(matrix))
		i, _ := slices.BinarySearchFunc(all, first, func(in *inputs, at uintptr) int {
			return cmp.Compare(place(in.matrix), at)
		})
		var squares []float64
		rows := 0
		for ; i < len(all) && place(all[i].matrix) < end; i++ {
			if squares == nil {
				squares = make([]float64, len(all[i].squares))
			} else if len(squares) != len(all[i].squares) {
				return nil
			}
			for j, v := range all[i].squares {
				squares[j] += v
			}
			rows += all[i].rows
		}
		var means []float32
		for _, v := range squares {
			means = append(means, float32(v/float64(rows)))
		}
		return means
	}
}

// place returns the address of memory. Weights are in mapped files or are never freed, so they do not move.
func place(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
