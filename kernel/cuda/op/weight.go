package op

import "sparrow/kernel"

// matrix is a weight in device memory, as it is stored.
type matrix struct {
	kernel.Weight
	role kernel.Role
}

// Role is what the matrix was prepared for.
func (m *matrix) Role() kernel.Role { return m.role }

// Prepare uploads a weight.
func (d *Device) Prepare(w kernel.Weight, role kernel.Role) (kernel.Matrix, error) {
	if err := w.Check(role); err != nil {
		return nil, err
	}
	return d.upload(w, role)
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
