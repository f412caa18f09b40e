package model

import (
	"cmp"
	"slices"
	"time"
)

// operations holds the times of a CPU device's operations in the steps of a phase, by name and, for GEMMs, by shape.
type operations struct {
	by    map[operation]*Kernel
	now   string // name of the running operation; "" outside of passes
	since time.Time
	shape string // shape of the running GEMM
	bytes int64  // bytes of the weights of the running GEMM
}

type operation struct{ name, shape string }

// product sets the shape and bytes of the weights that the running operation, a GEMM, reads.
func (o *operations) product(shape string, bytes int64) { o.shape, o.bytes = shape, bytes }

// next adds the time of the running operation and starts that of the named one, or of none if name is "".
func (o *operations) next(name string) {
	at := time.Now()
	if o.now != "" {
		name := operation{o.now, o.shape}
		k := o.by[name]
		if k == nil {
			if o.by == nil {
				o.by = map[operation]*Kernel{}
			}
			k = &Kernel{Name: name.name, Shape: name.shape}
			o.by[name] = k
		}
		us := float64(at.Sub(o.since).Nanoseconds()) / 1e3
		if k.Launches == 0 || us < k.BestUs {
			k.BestUs, k.Bytes = us, o.bytes
		}
		k.Launches++
		k.Us += us
	}
	o.now, o.since, o.shape, o.bytes = name, at, "", 0
}

// reset clears all times.
func (o *operations) reset() {
	*o = operations{by: o.by}
	clear(o.by)
}

// mean returns the mean time per step of each operation, the longest first.
func (o *operations) mean(steps int) []Kernel {
	var out []Kernel
	for _, k := range o.by {
		one := *k
		one.Launches, one.Us = k.Launches/steps, k.Us/float64(steps)
		out = append(out, one)
	}
	slices.SortFunc(out, func(x, y Kernel) int {
		return cmp.Or(cmp.Compare(y.Us, x.Us), cmp.Compare(x.Name, y.Name), cmp.Compare(x.Shape, y.Shape))
	})
	return out
}
