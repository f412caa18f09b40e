package op

import (
	"fmt"
	"math"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
	"sparrow/layout"
)

// require records the first argument of an operation that is not supported by any kernel.
type require struct {
	op  string
	err error
}

func (r *require) fail(format string, a ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: cuda: %s: %s", kernel.ErrUnsupported, r.op, fmt.Sprintf(format, a...))
	}
}

// dtype requires an element type.
func (r *require) dtype(name string, t kernel.Tensor, want kernel.DType) {
	if t.DType != want {
		r.fail("%s has type %v, this backend supports %v", name, t.DType, want)
	}
}

// packed requires rows without gaps.
func (r *require) packed(name string, t kernel.Tensor) {
	if t.Rows > 1 && t.Stride != t.Cols {
		r.fail("%s has %d columns and stride %d, want rows without gaps", name, t.Cols, t.Stride)
	}
}

// aligned requires an address and a row stride that are multiples of the given number of bytes.
func (r *require) aligned(name string, t kernel.Tensor, bytes int64) {
	if stride := int64(t.Stride) * int64(t.DType.Size()); t.Off%bytes != 0 || (t.Rows > 1 && stride%bytes != 0) {
		r.fail("%s is at byte %d with %d bytes from row to row, both must be multiples of "+
			"%d", name, t.Off, stride, bytes)
	}
}

// count requires a number that fits in the kernels' 32-bit integers.
func (r *require) count(name string, n int) int32 {
	if n < 0 || n > math.MaxInt32 {
		r.fail("there are %d %s, want 0 to %d", n, name, math.MaxInt32)
	}
	return int32(n)
}

// layout requires that a pool has one of the given cache layouts.
func (r *require) layout(p kernel.Pool, kinds ...layout.Kind) {
	for _, k := range kinds {
		if p.Layout == k {
			return
		}
	}
	r.fail("the layout is %v, this backend has kernels for %v", p.Layout, kinds)
}

// pool returns the description of a pool for kernels.
func (r *require) pool(p kernel.Pool) cuda.PoolView {
	r.aligned("pool", p.Mem, 16)
	return cuda.PoolView{Base: at(p.Mem), PageBytes: int64(p.Mem.Stride),
		PageTokens: r.count("tokens of a page", p.PageTokens), Slots: r.count("slots", p.Slots())}
}

// angles returns the description, for kernels, of a table of rotation angles with a row for each token.
func (r *require) angles(t kernel.Tensor) cuda.RotaryView {
	r.packed("angles", t)
	r.aligned("angles", t, 16)
	return cuda.RotaryView{Table: at(t), Rows: r.count("angles", t.Rows)}
}

// perhapsAngles is angles for a table that need not be given.
func (r *require) perhapsAngles(t kernel.Tensor) cuda.RotaryView {
	if !t.Given() {
		return cuda.RotaryView{}
	}
	return r.angles(t)
}
