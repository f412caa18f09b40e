package strict

import (
	"reflect"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/host"
)

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

// onGPU is an operation's arguments with their addresses on the detached device.
func onGPU[A any](a A) A {
	return replace(a, func(t kernel.Tensor) kernel.Tensor {
		t.Buf = t.Buf.(*buffer).gpu
		return t
	}, func(m *matrix) kernel.Matrix { return m.gpu }, func(x *experts) kernel.Experts { return x.gpu }).(A)
}

// widened are an operation's tensors of bfloat16 as float32, which the host computes with.
type widened struct{ list []wide }

type wide struct {
	from   kernel.Tensor // as the caller has it
	to     kernel.Tensor // f32, in memory of its own
	before []float32
}

// onHost is an operation's arguments with their contents.
func (w *widened) onHost(a any) any {
	return replace(a, func(t kernel.Tensor) kernel.Tensor {
		if t.DType != kernel.BF16 {
			return onHost(t)
		}
		return w.widen(t)
	}, func(m *matrix) kernel.Matrix { return m.host }, func(x *experts) kernel.Experts { return x.host })
}

// widen is a tensor as float32. The same view twice, as an operation in place has it, is one tensor.
func (w *widened) widen(t kernel.Tensor) kernel.Tensor {
	for i := range w.list {
		if w.list[i].from == t {
			return w.list[i].to
		}
	}
	v := make([]float32, t.Rows*t.Cols)
	for r := range t.Rows {
		for c, x := range host.U16(onHost(t).Slice(r, r+1)) {
			v[r*t.Cols+c] = num.FromBF16(x)
		}
	}
	to := kernel.Tensor{Buf: floats(v), DType: kernel.F32, Rows: t.Rows, Cols: t.Cols, Stride: t.Cols}
	w.list = append(w.list, wide{t, to, v})
	return to
}

// floats copies values to host memory.
func floats(v []float32) kernel.Buffer {
	var m host.Memory
	b, err := m.Alloc(int64(4 * len(v)))
	if err != nil {
		panic(err) // the bfloat16 tensor was there
	}
	copy(host.F32(kernel.Tensor{Buf: b, DType: kernel.F32, Rows: 1, Cols: len(v), Stride: len(v)}), v)
	return b
}

// narrow rounds what the operation has changed. What it has not changed stays, because tensors of one call may overlap.
func (w *widened) narrow() {
	for _, x := range w.list {
		after := host.F32(x.to)
		for r := range x.from.Rows {
			out := host.U16(onHost(x.from).Slice(r, r+1))
			for c := range out {
				if i := r*x.from.Cols + c; after[i] != x.before[i] {
					out[c] = num.BF16(after[i])
				}
			}
		}
	}
}

// replace copies arguments with every tensor and handle replaced.
func replace(a any, tensor func(kernel.Tensor) kernel.Tensor, m func(*matrix) kernel.Matrix,
	x func(*experts) kernel.Experts,
) any {
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch at := v.Addr().Interface().(type) {
		case *kernel.Tensor:
			if at.Given() {
				*at = tensor(*at)
			}
			return
		case *kernel.Matrix:
			if own, ok := (*at).(*matrix); ok {
				*at = m(own)
			}
			return
		case *kernel.Experts:
			if own, ok := (*at).(*experts); ok {
				*at = x(own)
			}
			return
		}
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				walk(v.Field(i))
			}
		case reflect.Slice:
			// The caller's list stays as it is.
			list := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
			reflect.Copy(list, v)
			for i := range list.Len() {
				walk(list.Index(i))
			}
			v.Set(list)
		}
	}
	v := reflect.New(reflect.TypeOf(a)).Elem()
	v.Set(reflect.ValueOf(a))
	walk(v)
	return v.Interface()
}
