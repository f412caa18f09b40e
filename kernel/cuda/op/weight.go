package op

import (
	"fmt"

	"sparrow/kernel"
)

// matrix is a weight in device memory, as it is stored.
type matrix struct {
	kernel.Weight
	role kernel.Role
}

// Role is what the matrix was prepared for.
func (m *matrix) Role() kernel.Role { return m.role }

// experts are matrices of a layer's experts in device memory.
type experts struct{ gate, up, down []*matrix }

func (x *experts) Count() int  { return len(x.gate) }
func (x *experts) Hidden() int { return x.gate[0].In() }
func (x *experts) Inner() int  { return x.gate[0].Out() }

// Prepare uploads a weight.
func (d *Device) Prepare(w kernel.Weight, role kernel.Role) (kernel.Matrix, error) {
	if err := w.Check(role); err != nil {
		return nil, err
	}
	return d.upload(w, role)
}

// PrepareExperts uploads the matrices of experts.
func (d *Device) PrepareExperts(w kernel.ExpertWeights) (kernel.Experts, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	x := &experts{}
	for e := range w.Gate {
		for _, m := range []struct {
			from kernel.Weight
			to   *[]*matrix
		}{{w.Gate[e], &x.gate}, {w.Up[e], &x.up}, {w.Down[e], &x.down}} {
			up, err := d.upload(m.from, kernel.Projected)
			if err != nil {
				return nil, fmt.Errorf("expert %d: %w", e, err)
			}
			*m.to = append(*m.to, up)
		}
	}
	return x, nil
}

func (d *Device) upload(w kernel.Weight, role kernel.Role) (*matrix, error) {
	for _, t := range []*kernel.Tensor{&w.Data, &w.Scale} {
		if !t.Given() {
			continue
		}
		from := []byte(t.Buf.(kernel.HostBuffer))[t.Off:][:t.Extent()]
		b, err := d.Alloc(int64(len(from)))
		if err != nil {
			return nil, err
		}
		t.Buf, t.Off = b, 0
		if err := d.Write(*t, from); err != nil {
			return nil, err
		}
	}
	return &matrix{w, role}, nil
}
