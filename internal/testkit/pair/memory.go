package pair

import "sparrow/kernel"

// buffer holds a buffer on each of the two devices.
type buffer struct{ first, second kernel.Buffer }

func (b *buffer) Len() int64 { return b.second.Len() }

// Alloc returns zeroed memory.
func (d *Device) Alloc(bytes int64) (kernel.Buffer, error) {
	a, err := d.first.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	b, err := d.second.Alloc(bytes)
	return &buffer{a, b}, err
}

// Free frees the memory on both devices.
func (d *Device) Free(b kernel.Buffer) {
	d.first.Free(b.(*buffer).first)
	d.second.Free(b.(*buffer).second)
}

// Write copies src to the start of dst.
func (d *Device) Write(dst kernel.Tensor, src []byte) error {
	if err := d.first.Write(First(dst), src); err != nil {
		return err
	}
	return d.second.Write(Second(dst), src)
}

// Read copies the start of src to dst.
func (d *Device) Read(dst []byte, src kernel.Tensor) error { return d.second.Read(dst, Second(src)) }

// Fetch copies the start of src to dst.
func (d *Device) Fetch(dst []byte, src kernel.Tensor) (kernel.Event, error) {
	return d.second.Fetch(dst, Second(src))
}

// Sync waits for the first device; the second, in host memory, has finished when an operation returns.
func (d *Device) Sync() error { return d.first.Sync() }

// matrix is a weight that both devices have prepared.
type matrix struct{ first, second kernel.Matrix }

func (m *matrix) Out() int          { return m.second.Out() }
func (m *matrix) In() int           { return m.second.In() }
func (m *matrix) Role() kernel.Role { return m.second.Role() }

// experts are experts that both devices have prepared.
type experts struct{ first, second kernel.Experts }

func (x *experts) Count() int  { return x.second.Count() }
func (x *experts) Hidden() int { return x.second.Hidden() }
func (x *experts) Inner() int  { return x.second.Inner() }

// Prepare prepares a weight on both devices.
func (d *Device) Prepare(w kernel.Weight, role kernel.Role) (kernel.Matrix, error) {
	a, err := d.first.Prepare(w, role)
	if err != nil {
		return nil, err
	}
	b, err := d.second.Prepare(w, role)
	return &matrix{a, b}, err
}

// PrepareExperts prepares the matrices of experts on both devices.
func (d *Device) PrepareExperts(w kernel.ExpertWeights) (kernel.Experts, error) {
	a, err := d.first.PrepareExperts(w)
	if err != nil {
		return nil, err
	}
	b, err := d.second.PrepareExperts(w)
	return &experts{a, b}, err
}

// SwapExperts moves experts between memories on both devices.
func (d *Device) SwapExperts(x kernel.Experts, in, out int) error {
	own := x.(*experts)
	if err := kernel.SwapExperts(d.first, own.first, in, out); err != nil {
		return err
	}
	return kernel.SwapExperts(d.second, own.second, in, out)
}

// First returns a tensor of the device on the first device.
func First(t kernel.Tensor) kernel.Tensor {
	t.Buf = t.Buf.(*buffer).first
	return t
}

// Second returns a tensor of the device on the second device.
func Second(t kernel.Tensor) kernel.Tensor {
	t.Buf = t.Buf.(*buffer).second
	return t
}

// firsts and seconds replace the tensors and weights of an operation's arguments by those of the first and the second
// device.
var (
	firsts = kernel.Replacement{Tensor: First,
		Matrix:  func(m kernel.Matrix) kernel.Matrix { return m.(*matrix).first },
		Experts: func(x kernel.Experts) kernel.Experts { return x.(*experts).first }}
	seconds = kernel.Replacement{Tensor: Second,
		Matrix:  func(m kernel.Matrix) kernel.Matrix { return m.(*matrix).second },
		Experts: func(x kernel.Experts) kernel.Experts { return x.(*experts).second }}
)
