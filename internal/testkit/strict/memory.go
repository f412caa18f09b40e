package strict

import "sparrow/kernel"

// buffer is memory with contents on the host and an address on the detached device.
type buffer struct {
	host kernel.Buffer
	gpu  kernel.Buffer
}

// Len is the size in bytes.
func (b *buffer) Len() int64 { return b.host.Len() }

// Alloc returns zeroed memory.
func (d *Device) Alloc(bytes int64) (kernel.Buffer, error) {
	h, err := d.host.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	g, err := d.gpu.Alloc(bytes)
	return &buffer{h, g}, err
}

// Free gives memory back.
func (d *Device) Free(b kernel.Buffer) { d.gpu.Free(b.(*buffer).gpu) }

// Write copies src to the start of dst.
func (d *Device) Write(dst kernel.Tensor, src []byte) error { return d.host.Write(onHost(dst), src) }

// Read copies the start of src to dst.
func (d *Device) Read(dst []byte, src kernel.Tensor) error { return d.host.Read(dst, onHost(src)) }

// Fetch copies the start of src to dst. Results are there when an operation returns, and so is the copy.
func (d *Device) Fetch(dst []byte, src kernel.Tensor) (kernel.Event, error) {
	return d.host.Fetch(dst, onHost(src))
}

// Sync waits for nothing: results are there when an operation returns.
func (d *Device) Sync() error { return d.gpu.Sync() }

// matrix is a weight that both sides have prepared.
type matrix struct{ host, gpu kernel.Matrix }

func (m *matrix) Out() int          { return m.host.Out() }
func (m *matrix) In() int           { return m.host.In() }
func (m *matrix) Role() kernel.Role { return m.host.Role() }

// experts are experts that both sides have prepared.
type experts struct{ host, gpu kernel.Experts }

func (x *experts) Count() int  { return x.host.Count() }
func (x *experts) Hidden() int { return x.host.Hidden() }
func (x *experts) Inner() int  { return x.host.Inner() }

// Prepare hands a weight to both sides.
func (d *Device) Prepare(w kernel.Weight, role kernel.Role) (kernel.Matrix, error) {
	g, err := d.gpu.Prepare(w, role)
	if err != nil {
		return nil, err
	}
	r, err := d.host.Prepare(w, role)
	return &matrix{r, g}, err
}

// PrepareExperts hands the matrices of experts to both sides.
func (d *Device) PrepareExperts(w kernel.ExpertWeights) (kernel.Experts, error) {
	g, err := d.gpu.PrepareExperts(w)
	if err != nil {
		return nil, err
	}
	r, err := d.host.PrepareExperts(w)
	return &experts{r, g}, err
}

// onHost is a tensor's contents.
func onHost(t kernel.Tensor) kernel.Tensor {
	if t.Given() {
		t.Buf = t.Buf.(*buffer).host
	}
	return t
}

// hosts are an operation's arguments with their contents, gpus with their addresses on the GPU.
var (
	hosts = kernel.Replacement{Tensor: onHost, Matrix: func(m kernel.Matrix) kernel.Matrix { return m.(*matrix).host },
		Experts: func(x kernel.Experts) kernel.Experts { return x.(*experts).host }}
	gpus = kernel.Replacement{Tensor: func(t kernel.Tensor) kernel.Tensor {
		t.Buf = t.Buf.(*buffer).gpu
		return t
	}, Matrix: func(m kernel.Matrix) kernel.Matrix { return m.(*matrix).gpu },
		Experts: func(x kernel.Experts) kernel.Experts { return x.(*experts).gpu }}
)
