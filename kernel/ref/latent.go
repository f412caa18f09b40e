package ref

import (
	"sparrow/kernel"
	"sparrow/kernel/host"
)

// Absorb projects queries into latent space.
func (*Device) Absorb(a kernel.AbsorbArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	if err := onlyF32("absorb", a.Out, a.Q); err != nil {
		return err
	}
	kvb, err := host.Own("absorb", a.KVB)
	if err != nil {
		return err
	}
	d := a.Dims
	row := make([]float64, d.Latent)
	sums := make([]float64, a.Q.Rows*d.Latent) // [T, Latent] of one head
	for h := range d.Heads {
		clear(sums)
		for n := range d.Nope {
			weightRow(row, kvb, h*(d.Nope+d.V)+n)
			for t := range a.Q.Rows {
				q := float64(host.RowF32(a.Q, t)[h*d.QK()+n])
				sum := sums[t*d.Latent:][:d.Latent]
				for c, w := range row {
					sum[c] += q * w
				}
			}
		}
		for t := range a.Q.Rows {
			out := host.RowF32(a.Out, t)[h*d.Row():][:d.Row()]
			for c, v := range sums[t*d.Latent:][:d.Latent] {
				out[c] = float32(v)
			}
			copy(out[d.Latent:], host.RowF32(a.Q, t)[h*d.QK()+d.Nope:])
		}
	}
	return nil
}

// Expand projects attention outputs out of latent space.
func (*Device) Expand(a kernel.ExpandArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	if err := onlyF32("expand", a.Out, a.U); err != nil {
		return err
	}
	kvb, err := host.Own("expand", a.KVB)
	if err != nil {
		return err
	}
	d := a.Dims
	row := make([]float64, d.Latent)
	for h := range d.Heads {
		for v := range d.V {
			weightRow(row, kvb, h*(d.Nope+d.V)+d.Nope+v)
			for t := range a.U.Rows {
				host.RowF32(a.Out, t)[h*d.V+v] = float32(dot(row, host.RowF32(a.U, t)[h*d.Latent:][:d.Latent]))
			}
		}
	}
	return nil
}
