package step_test

import (
	"fmt"
	"reflect"
	"strings"

	"sparrow/internal/mmap"
	"sparrow/kernel"
)

// recordDevice records the operations of passes on another device: for every operation its name, the shapes, strides,
// types and addresses of its tensors, and the values of its other arguments. Actions that a pass must not take between
// its first and its last operation are faults: allocate, free, write, read, wait, prepare weights.
type recordDevice struct {
	dev     kernel.Device
	faults  []string    // violations of the rules for passes, as text
	calls   []string    // operations of the pass in progress, as text
	ops     []kernel.Op // operations of the pass in progress, as values
	fail    func(op string) error
	dry     bool           // operations are recorded but not run
	mute    bool           // operations are not recorded as text
	places  map[string]int // numbers of the buffers and weights of the pass in progress, in order of their first use
	running bool           // a pass is between its first and its last operation
	unread  map[*byte]bool // buffers that were allocated while dry was set
}

func (d *recordDevice) begin() {
	d.calls, d.ops, d.places, d.running = nil, nil, map[string]int{}, true
}

func (d *recordDevice) end() []string {
	d.running = false
	return d.calls
}

func (d *recordDevice) fault(format string, args ...any) {
	d.faults = append(d.faults, fmt.Sprintf(format, args...))
}

// forbid records a fault if the named call is made during a pass.
func (d *recordDevice) forbid(name string) {
	if d.running {
		d.fault("%s after %d operations of a pass", name, len(d.ops))
	}
}

// note records an operation as text.
func (d *recordDevice) note(name string, args any) {
	if d.running && !d.mute {
		d.calls = append(d.calls, name+d.text(reflect.ValueOf(args)))
	}
}

// text returns an argument as text.
func (d *recordDevice) text(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case kernel.Tensor:
		if !x.Given() {
			return "none"
		}
		return fmt.Sprintf("%v[%d,%d]/%d in %d at %d", x.DType, x.Rows, x.Cols, x.Stride, d.place(x.Buf), x.Off)
	case kernel.Matrix, kernel.Experts:
		return fmt.Sprintf("weight %d", d.place(x))
	}
	switch v.Kind() {
	case reflect.Struct:
		var b strings.Builder
		for i := range v.NumField() {
			fmt.Fprintf(&b, " %s=%s", v.Type().Field(i).Name, d.text(v.Field(i)))
		}
		return "{" + b.String() + " }"
	case reflect.Slice, reflect.Array:
		var b strings.Builder
		for i := range v.Len() {
			b.WriteString(" " + d.text(v.Index(i)))
		}
		return "[" + b.String() + " ]"
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return "none"
		}
		return d.text(v.Elem())
	}
	return fmt.Sprint(v.Interface())
}

// place returns the number of a buffer or weight. Equal passes in two arenas have the same numbers, because they use
// buffers and weights in the same order.
func (d *recordDevice) place(x any) int {
	p := fmt.Sprintf("%p", x) // address of a buffer's memory, or pointer of a weight handle
	n, ok := d.places[p]
	if !ok {
		n = len(d.places)
		d.places[p] = n
	}
	return n
}

// Do records an operation and, unless dry is set, runs it.
func (d *recordDevice) Do(op kernel.Op) error {
	if d.running {
		d.note(op.Name(), op)
		d.ops = append(d.ops, op)
		if d.fail != nil {
			if err := d.fail(op.Name()); err != nil {
				return err
			}
		}
	}
	if d.dry {
		return nil
	}
	return kernel.Do(d.dev, op)
}

// Copy records and runs the operation, like Do.
func (d *recordDevice) Copy(a kernel.CopyArgs) error { return d.Do(a) }

// Take records and runs the operation, like Do.
func (d *recordDevice) Take(a kernel.TakeArgs) error { return d.Do(a) }

// Put records and runs the operation, like Do.
func (d *recordDevice) Put(a kernel.PutArgs) error { return d.Do(a) }

// Accept records and runs the operation, like Do.
func (d *recordDevice) Accept(a kernel.AcceptArgs) error { return d.Do(a) }

// Alloc allocates memory. A call during a pass is a fault, as are calls of Free, Write, Read, Fetch, Sync, Prepare and
// PrepareExperts. If no operations are run, most of the memory is never used. The system then provides only the pages
// that are used; clearing the rest took a quarter of the time of these tests.
func (d *recordDevice) Alloc(n int64) (kernel.Buffer, error) {
	d.forbid("Alloc")
	if !d.dry || n == 0 {
		return d.dev.Alloc(n)
	}
	b, err := mmap.Memory(int(n))
	if err != nil {
		return nil, err
	}
	if d.unread == nil {
		d.unread = map[*byte]bool{}
	}
	d.unread[&b[0]] = true
	return kernel.HostBuffer(b), nil
}

// Free frees memory.
func (d *recordDevice) Free(b kernel.Buffer) {
	d.forbid("Free")
	if h, ok := b.(kernel.HostBuffer); ok && len(h) > 0 && d.unread[&h[0]] {
		delete(d.unread, &h[0])
		if err := mmap.FreeMemory(h); err != nil {
			d.fault("free: %v", err)
		}
		return
	}
	d.dev.Free(b)
}

// Write copies to the device.
func (d *recordDevice) Write(dst kernel.Tensor, src []byte) error {
	d.forbid("Write")
	return d.dev.Write(dst, src)
}

// Read copies from the device.
func (d *recordDevice) Read(dst []byte, src kernel.Tensor) error {
	d.forbid("Read")
	return d.dev.Read(dst, src)
}

// Fetch enqueues a copy from the device.
func (d *recordDevice) Fetch(dst []byte, src kernel.Tensor) (kernel.Event, error) {
	d.forbid("Fetch")
	return d.dev.Fetch(dst, src)
}

// Sync waits for all enqueued operations.
func (d *recordDevice) Sync() error {
	d.forbid("Sync")
	return d.dev.Sync()
}

// Prepare converts a weight to the form that the other device uses.
func (d *recordDevice) Prepare(w kernel.Weight, r kernel.Role) (kernel.Matrix, error) {
	d.forbid("Prepare")
	return d.dev.Prepare(w, r)
}

// PrepareExperts converts weights of experts to the form that the other device uses.
func (d *recordDevice) PrepareExperts(w kernel.ExpertWeights) (kernel.Experts, error) {
	d.forbid("PrepareExperts")
	return d.dev.PrepareExperts(w)
}

// Name returns the name of the other device.
func (d *recordDevice) Name() string { return d.dev.Name() }

// Activation returns the activation type of the other device.
func (d *recordDevice) Activation() kernel.DType { return d.dev.Activation() }

// Hardware returns the hardware of the other device.
func (d *recordDevice) Hardware() kernel.Hardware { return d.dev.Hardware() }

// Close closes the other device.
func (d *recordDevice) Close() error { return d.dev.Close() }
