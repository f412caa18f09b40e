// Package astray implements a device with a deliberate fault: another device runs its operations, and one small fault
// is injected into their inputs or outputs. It tests comparisons of devices: a comparison that passes on the inner
// device must fail on this one. Only tests import it.
package astray

import (
	"encoding/binary"
	"math"
	"slices"

	"sparrow/internal/num"
	"sparrow/kernel"
)

// Fault is a kind of error that a device makes.
type Fault string

// Faults that can be injected. All of them have occurred during the development of kernels.
const (
	None          Fault = ""
	KeyDropped    Fault = "one key dropped"       // the last key that a row of attention reads is left out
	ExpertMissing Fault = "one expert missing"    // the last expert that a row chose is left out
	HeadScaled    Fault = "a head scaled by 1.01" // the output of the last head of attention is scaled
	WindowShort   Fault = "a window one short"    // the window of rows with a full window is one token short
	StalePage     Fault = "a stale page"          // a store does not write the rows of its first page
	LastRow       Fault = "a last row is skipped" // the last row of attention keeps its previous values
	// WrongKey selects a wrong key in the last row that does not select all keys.
	WrongKey Fault = "another key is selected"
)

// All returns the faults of a family with experts; v4 adds the fault of windows.
func All(v4 bool) []Fault {
	list := []Fault{KeyDropped, ExpertMissing, HeadScaled, StalePage, LastRow}
	if v4 {
		list = append(list, WindowShort)
	}
	return list
}

// Device is a device with a fault, which may change between passes.
type Device struct {
	kernel.Device
	Fault Fault
	// Only, if set, selects the operations that the fault may change: a comparison of two operations cannot find a
	// fault that both of them have.
	Only func(kernel.Op) bool
	// Hits counts the operations that the fault changed; a test with 0 is not valid.
	Hits int
}

// On returns a device with a fault.
func On(d kernel.Device, f Fault) *Device { return &Device{Device: d, Fault: f} }

// Do runs an operation with the fault.
func (d *Device) Do(op kernel.Op) error {
	if d.Only != nil && !d.Only(op) {
		return d.Device.Do(op)
	}
	switch a := op.(type) {
	case kernel.SparseArgs:
		return d.attend(a, a.Out, a.Heads, a.Lens)
	case kernel.LatentArgs:
		return d.attend(a, a.Out, a.Heads, a.Lens)
	case kernel.DenseArgs:
		return d.attend(a, a.Out, a.Dims.Heads, a.Lens)
	case kernel.FlatArgs:
		return d.attend(a, a.Out, a.Heads, a.Lens)
	case kernel.DualArgs:
		lens := a.Window.Lens
		if a.Extra.Given() && d.Fault == KeyDropped {
			lens = a.Extra.Lens
		}
		return d.attend(a, a.Out, a.Heads, lens)
	case kernel.ExpertArgs:
		if d.Fault == ExpertMissing {
			return d.without(a)
		}
	case kernel.StoreArgs:
		if d.Fault == StalePage {
			return d.stale(a, a.Slots, a.Pool.PageTokens)
		}
	case kernel.EntryStoreArgs:
		if d.Fault == StalePage {
			return d.stale(a, a.Slots, a.Pool.PageTokens)
		}
	case kernel.SelectArgs:
		if d.Fault == WrongKey {
			return d.swapped(a)
		}
	}
	return d.Device.Do(op)
}

// attend runs an attention operation with the fault, if it is a fault of attention.
func (d *Device) attend(op kernel.Op, out kernel.Tensor, heads int, lens kernel.Tensor) error {
	switch d.Fault {
	case KeyDropped:
		return d.with(op, lens, func(v []int32) bool {
			return change(v, func(n int32) bool { return n > 1 }, func(n int32) int32 { return n - 1 })
		})
	case WindowShort:
		if a, ok := op.(kernel.DualArgs); ok {
			most := int32(a.Window.Indices.Cols)
			return d.with(op, lens, func(v []int32) bool {
				return change(v, func(n int32) bool { return n == most }, func(n int32) int32 { return n - 1 })
			})
		}
	case HeadScaled:
		if err := d.Device.Do(op); err != nil {
			return err
		}
		d.Hits++
		width := out.Cols / heads
		return d.update(out.Columns(out.Cols-width, out.Cols), func(v float32) float32 { return 1.01 * v })
	case LastRow:
		d.Hits++
		last := out.Slice(out.Rows-1, out.Rows)
		kept := make([]byte, last.Extent())
		if err := d.Device.Read(kept, last); err != nil {
			return err
		}
		if err := d.Device.Do(op); err != nil {
			return err
		}
		return d.Device.Write(last, kept)
	}
	return d.Device.Do(op)
}

// change changes the numbers that ok selects and reports whether there were any.
func change(v []int32, ok func(int32) bool, to func(int32) int32) (any bool) {
	for i := range v {
		if ok(v[i]) {
			v[i], any = to(v[i]), true
		}
	}
	return any
}

// with runs an operation while some integers that it reads are changed, and restores them.
func (d *Device) with(op kernel.Op, t kernel.Tensor, change func([]int32) bool) error {
	v := make([]int32, t.Rows*t.Cols)
	if err := kernel.ReadI32(d.Device, v, t); err != nil {
		return err
	}
	was := slices.Clone(v)
	if !change(v) {
		return d.Device.Do(op)
	}
	d.Hits++
	if err := kernel.WriteI32(d.Device, t, v); err != nil {
		return err
	}
	if err := d.Device.Do(op); err != nil {
		return err
	}
	return kernel.WriteI32(d.Device, t, was)
}

// without runs a with the weight of the last chosen expert of every row set to zero.
func (d *Device) without(a kernel.ExpertArgs) error {
	v := make([]float32, a.Weights.Rows*a.Weights.Cols)
	if err := kernel.ReadF32(d.Device, v, a.Weights); err != nil {
		return err
	}
	less := slices.Clone(v)
	for r := range a.Weights.Rows {
		less[(r+1)*a.Weights.Cols-1] = 0
	}
	d.Hits++
	if err := kernel.WriteF32(d.Device, a.Weights, less); err != nil {
		return err
	}
	if err := d.Device.Do(a); err != nil {
		return err
	}
	return kernel.WriteF32(d.Device, a.Weights, v)
}

// stale runs a store without the rows of its first page.
func (d *Device) stale(op kernel.Op, slots kernel.Tensor, page int) error {
	return d.with(op, slots, func(v []int32) bool {
		at := slices.IndexFunc(v, func(s int32) bool { return s >= 0 })
		if at < 0 {
			return false
		}
		first := v[at] / int32(page)
		return change(v, func(s int32) bool { return s >= 0 && s/int32(page) == first },
			func(int32) int32 { return -1 })
	})
}

// swapped runs a selection and then, in the last row that does not select all keys, replaces a selected key by the
// first key that was not selected.
func (d *Device) swapped(a kernel.SelectArgs) error {
	if err := d.Device.Do(a); err != nil {
		return err
	}
	got := make([]int32, a.Out.Rows*a.Out.Cols)
	if err := kernel.ReadI32(d.Device, got, a.Out); err != nil {
		return err
	}
	for r := a.Out.Rows - 1; r >= 0; r-- {
		row := got[r*a.Out.Cols:][:a.Out.Cols]
		for i := range row {
			if row[i] > int32(i) { // key i is the first key that was not selected
				row[i] = int32(i)
				d.Hits++
				return kernel.WriteI32(d.Device, a.Out, got)
			}
		}
	}
	return nil
}

// update replaces every value v of a tensor by f(v).
func (d *Device) update(t kernel.Tensor, f func(float32) float32) error {
	size := t.DType.Size()
	raw := make([]byte, t.Extent())
	if err := d.Device.Read(raw, t); err != nil {
		return err
	}
	for r := range t.Rows {
		for c := range t.Cols {
			b := raw[(r*t.Stride+c)*size:]
			if t.DType == kernel.BF16 {
				binary.LittleEndian.PutUint16(b, num.BF16(f(num.FromBF16(binary.LittleEndian.Uint16(b)))))
			} else {
				binary.LittleEndian.PutUint32(b, math.Float32bits(f(math.Float32frombits(
					binary.LittleEndian.Uint32(b)))))
			}
		}
	}
	return d.Device.Write(t, raw)
}
