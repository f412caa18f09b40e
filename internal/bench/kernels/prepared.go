package kernels

import "sparrow/kernel"

// prepared stores the handles of the same weights for each device. They are made when a case first runs, before it is
// timed.
type prepared[H any] struct {
	by map[kernel.Device]H
	do func(kernel.Device) (H, error)
}

func prepare[H any](do func(kernel.Device) (H, error)) *prepared[H] {
	return &prepared[H]{map[kernel.Device]H{}, do}
}

// matrix prepares a weight for each device.
func matrix(w kernel.Weight, role kernel.Role) *prepared[kernel.Matrix] {
	return prepare(func(d kernel.Device) (kernel.Matrix, error) { return d.Prepare(w, role) })
}

// of returns a device's handle.
func (p *prepared[H]) of(d kernel.Device) (H, error) {
	h, ok := p.by[d]
	if ok {
		return h, nil
	}
	h, err := p.do(d)
	if err == nil {
		p.by[d] = h
	}
	return h, err
}

// with runs an operation with a device's handle.
func (p *prepared[H]) with(d kernel.Device, run func(H) error) error {
	h, err := p.of(d)
	if err != nil {
		return err
	}
	return run(h)
}
