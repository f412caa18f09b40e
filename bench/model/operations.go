package model

import (
	"cmp"
	"slices"
	"time"

	"sparrow/kernel"
)

// operations are the times of a host device's operations in the steps of a phase, by name.
type operations struct {
	by    map[string]*Kernel
	now   kernel.Mark // 0 between passes
	since time.Time
}

// next ends the operation that runs and begins another; 0 is none.
func (o *operations) next(m kernel.Mark) {
	at := time.Now()
	if o.now != 0 {
		name := o.now.Operation()
		k := o.by[name]
		if k == nil {
			if o.by == nil {
				o.by = map[string]*Kernel{}
			}
			k = &Kernel{Name: name}
			o.by[name] = k
		}
		k.Launches++
		k.Us += float64(at.Sub(o.since).Nanoseconds()) / 1e3
	}
	o.now, o.since = m, at
}

// reset forgets all times.
func (o *operations) reset() {
	o.now = 0
	clear(o.by)
}

// mean is what each operation takes in one of so many steps, those that take longest first.
func (o *operations) mean(steps int) []Kernel {
	var out []Kernel
	for _, k := range o.by {
		out = append(out, Kernel{Name: k.Name, Launches: k.Launches / steps, Us: k.Us / float64(steps)})
	}
	slices.SortFunc(out, func(x, y Kernel) int { return cmp.Or(cmp.Compare(y.Us, x.Us), cmp.Compare(x.Name, y.Name)) })
	return out
}
