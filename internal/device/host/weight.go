package host

import (
	"fmt"
	"slices"
	"unsafe"

	"sparrow/kernel"
)

// Matrix is a weight prepared in host memory, in its stored form: in place or as a copy.
type Matrix struct {
	kernel.Weight
	role   kernel.Role
	Expert bool // set only by the reference implementation
	Folded bool // e2m1 matrix that the reference multiplies like a GPU: as e4m3, with quantised rows
}

// Role returns the role that the matrix was prepared for.
func (m *Matrix) Role() kernel.Role { return m.role }

// Experts holds the prepared matrices of a layer's experts.
type Experts struct {
	Gate, Up, Down []*Matrix
	block          []byte // memory of all matrices, if they were prepared Together
}

// Count returns the number of experts.
func (x *Experts) Count() int { return len(x.Gate) }

// Hidden returns the length of the rows that experts read and write.
func (x *Experts) Hidden() int { return x.Gate[0].In() }

// Inner returns the length of the rows between gate and down.
func (x *Experts) Inner() int { return x.Gate[0].Out() }

// Stored returns the matrices of expert i.
func (x *Experts) Stored(i int) (gate, up, down kernel.Weight) {
	return x.Gate[i].Weight, x.Up[i].Weight, x.Down[i].Weight
}

// Block returns the memory of all matrices, if they were prepared Together.
func (x *Experts) Block() []byte { return x.block }

// Prepare checks a weight and uses it in place, or as a copy if it is not aligned for its elements or weights are
// packed.
func (m Memory) Prepare(w kernel.Weight, role kernel.Role) (kernel.Matrix, error) {
	own, err := m.Matrix(w, role)
	if err != nil {
		return nil, err
	}
	return own, nil
}

// PrepareExperts checks the matrices of experts and stores them like Prepare.
func (m Memory) PrepareExperts(w kernel.ExpertWeights) (kernel.Experts, error) {
	own, err := m.Experts(w)
	if err != nil {
		return nil, err
	}
	return own, nil
}

// Matrix is like Prepare, for a device that reads the elements of the matrix.
func (m Memory) Matrix(w kernel.Weight, role kernel.Role) (*Matrix, error) {
	if err := w.Check(role); err != nil {
		return nil, err
	}
	return keep(w, role, m.place), nil
}

// Experts is like PrepareExperts, for a device that reads the elements of the matrices.
func (m Memory) Experts(w kernel.ExpertWeights) (*Experts, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	if w.Split() {
		return nil, fmt.Errorf("%w: prepare experts: %d of %d are in host memory; this device has one "+
			"memory", kernel.ErrUnsupported, w.Methods.OnHost(), len(w.Gate))
	}
	x := &Experts{}
	if w.Together {
		m.pack = m.pack.oneBlock(w.StoredBytes(packLine))
		x.block = m.pack.block
	}
	made := map[*byte]bool{} // matrices whose values are generated here, so they need no copy
	place := func(t kernel.Tensor) kernel.Tensor {
		if b := Bytes(t); len(b) > 0 && made[&b[0]] {
			return t
		}
		return m.place(t)
	}
	w.Gate, w.Up, w.Down = slices.Clone(w.Gate), slices.Clone(w.Up), slices.Clone(w.Down) // OnHost changes the lists
	err := w.OnHost(func(bytes int64) (kernel.HostBuffer, error) {
		b := m.take(int(bytes))
		if len(b) > 0 {
			made[&b[0]] = true
		}
		return b, nil
	})
	if err != nil {
		return nil, err
	}
	for e := range w.Gate { // the matrices of an expert are adjacent, as in OnHost
		x.Gate = append(x.Gate, keep(w.Gate[e], kernel.Projected, place))
		x.Up = append(x.Up, keep(w.Up[e], kernel.Projected, place))
		x.Down = append(x.Down, keep(w.Down[e], kernel.Projected, place))
	}
	return x, nil
}

// take returns memory for a weight.
func (m Memory) take(bytes int) []byte {
	if m.pack == nil {
		return aligned(bytes)
	}
	return m.pack.take(bytes)
}

// Replace replaces expert i by the only expert of w: packed weights are copied into the memory of the replaced expert.
func (m Memory) Replace(x *Experts, i int, w kernel.ExpertWeights) error {
	if err := w.Check(); err != nil {
		return err
	}
	if len(w.Gate) != 1 || i < 0 || i >= x.Count() {
		return fmt.Errorf("%w: %d experts were given to replace expert %d (of %d); want one, and a valid number",
			kernel.ErrArgument, len(w.Gate), i,
			x.Count())
	}
	places := []struct {
		from kernel.Weight
		to   **Matrix
	}{{w.Gate[0], &x.Gate[i]}, {w.Up[0], &x.Up[i]}, {w.Down[0], &x.Down[i]}}
	for _, p := range places {
		if !alike(p.from.Data, (*p.to).Data) || !alike(p.from.Scale, (*p.to).Scale) ||
			!alike(p.from.Zero, (*p.to).Zero) {
			return fmt.Errorf("%w: an expert of %v with scales of %v cannot replace one of %v with scales of %v",
				kernel.ErrArgument, p.from.Data, p.from.Scale, (*p.to).Data, (*p.to).Scale)
		}
	}
	for _, p := range places {
		if m.pack == nil && x.block == nil {
			*p.to = keep(p.from, (*p.to).role, m.place)
			continue
		}
		copyRows((*p.to).Data, p.from.Data)
		if p.from.Scale.Given() {
			copyRows((*p.to).Scale, p.from.Scale)
		}
		if p.from.Zero.Given() {
			copyRows((*p.to).Zero, p.from.Zero)
		}
		(*p.to).Factor = p.from.Factor
	}
	return nil
}

// alike reports whether two tensors have the same type and shape.
func alike(a, b kernel.Tensor) bool {
	return a.Given() == b.Given() && (!a.Given() || a.DType == b.DType && a.Rows == b.Rows && a.Cols == b.Cols)
}

// copyRows copies the rows of a tensor over the rows of another tensor of equal type and shape.
func copyRows(to, from kernel.Tensor) {
	for r := range to.Rows {
		copy(Bytes(to.Slice(r, r+1)), Bytes(from.Slice(r, r+1)))
	}
}

// keep makes a matrix of a weight whose tensors place has stored.
func keep(w kernel.Weight, role kernel.Role, place func(kernel.Tensor) kernel.Tensor) *Matrix {
	w.Data = place(w.Data)
	if w.Scale.Given() {
		w.Scale = place(w.Scale)
	}
	if w.Zero.Given() {
		w.Zero = place(w.Zero)
	}
	return &Matrix{Weight: w, role: role}
}

// place returns the tensor itself, or a copy of its bytes, because typed views need aligned addresses.
func (m Memory) place(t kernel.Tensor) kernel.Tensor {
	b := Bytes(t)
	switch {
	case m.pack != nil:
		b, t.Stride = m.pack.rows(t), t.Cols
	case len(b) > 0 && uintptr(unsafe.Pointer(&b[0]))%uintptr(t.DType.Align()) != 0:
		copied := aligned(len(b))
		copy(copied, b)
		b = copied
	default:
		return t
	}
	t.Buf, t.Off = kernel.HostBuffer(b), 0
	return t
}

// Own returns the matrix inside a handle, or an error that names the operation if a device of another kind prepared the
// matrix.
func Own(op string, m kernel.Matrix) (*Matrix, error) {
	if own, ok := m.(*Matrix); ok {
		return own, nil
	}
	return nil, fmt.Errorf("%w: %s: the matrix was prepared by another device", kernel.ErrArgument, op)
}
