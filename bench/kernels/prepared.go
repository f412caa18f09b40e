package kernels

import "sparrow/kernel"

// prepared keeps what each device makes of the same weights when it first runs a case, before anything is timed.
type prepared[H any] struct {
	by map[kernel.Device]H
	do func(kernel.Device) (H, error)
}

func prepare[H any](do func(kernel.Device) (H, error)) *prepared[H] {
	return &prepared[H]{map[kernel.Device]H{}, do}
}

// matrix is a weight for each device.
func matrix(w kernel.Weight, role kernel.Role) *prepared[kernel.Matrix] {
	return prepare(func(d kernel.Device) (kernel.Matrix, error) { return d.Prepare(w, role) })
}

// with runs an operation with a device's own.
func (p *prepared[H]) with(d kernel.Device, run func(H) error) error {
	h, ok := p.by[d]
	if !ok {
		var err error
		if h, err = p.do(d); err != nil {
			return err
		}
		p.by[d] = h
	}
	return run(h)
}
