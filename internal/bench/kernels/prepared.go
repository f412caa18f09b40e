package kernels

import "sparrow/kernel"

// prepared holds the handles of prepared weights by device. A device prepares them before the first timed run.
type prepared[H any] struct {
	by map[kernel.Device]H
	do func(kernel.Device) (H, error)
}

func prepare[H any](do func(kernel.Device) (H, error)) *prepared[H] {
	return &prepared[H]{map[kernel.Device]H{}, do}
}

// matrix returns the handle of a weight, which each device prepares.
func matrix(w kernel.Weight, role kernel.Role) *prepared[kernel.Matrix] {
	return prepare(func(d kernel.Device) (kernel.Matrix, error) { return d.Prepare(w, role) })
}

// of returns the handle of device d.
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

// with calls run with the handle of device d.
func (p *prepared[H]) with(d kernel.Device, run func(H) error) error {
	h, err := p.of(d)
	if err != nil {
		return err
	}
	return run(h)
}
