package ref

import (
	"sparrow/kernel"
	"sparrow/kernel/host"
)

// Absorb moves queries into latent space.
func (*Device) Absorb(a kernel.AbsorbArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	if err := onlyF32("absorb", a.Out, a.Q); err != nil {
		return err
	}
	d := a.Dims
	sum := make([]float64, d.Latent)
	for t := range a.Q.Rows {
		q, out := host.RowF32(a.Q, t), host.RowF32(a.Out, t)
		for h := range d.Heads {
			qh, oh := q[h*d.QK():][:d.QK()], out[h*d.Row():][:d.Row()]
			clear(sum)
			for n := range d.Nope {
				o := h*(d.Nope+d.V) + n
				for c := range sum {
					sum[c] += float64(qh[n]) * weightAt(a.KVB, o, c)
				}
			}
			for c, v := range sum {
				oh[c] = float32(v)
			}
			copy(oh[d.Latent:], qh[d.Nope:])
		}
	}
	return nil
}

// Expand moves attention outputs out of latent space.
func (*Device) Expand(a kernel.ExpandArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	if err := onlyF32("expand", a.Out, a.U); err != nil {
		return err
	}
	d := a.Dims
	row := make([]float64, d.Latent)
	for h := range d.Heads {
		for v := range d.V {
			weightRow(row, a.KVB, h*(d.Nope+d.V)+d.Nope+v)
			for t := range a.U.Rows {
				host.RowF32(a.Out, t)[h*d.V+v] = float32(dot(row, host.RowF32(a.U, t)[h*d.Latent:][:d.Latent]))
			}
		}
	}
	return nil
}
