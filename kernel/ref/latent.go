package ref

import (
	"sparrow/internal/device/host"
	"sparrow/kernel"
)

// absorb projects queries into latent space.
func absorb(d *Device, a kernel.AbsorbArgs) error {
	if err := onlyF32("absorb", a.Out, a.Q); err != nil {
		return err
	}
	kvb, err := host.Own("absorb", a.KVB)
	if err != nil {
		return err
	}
	n := a.Dims
	row := make([]float64, n.Latent)
	sums := make([]float64, a.Q.Rows*n.Latent) // [T, Latent]: outputs of one head
	for h := range n.Heads {
		clear(sums)
		for k := range n.Nope {
			d.weightRow(row, kvb, h*(n.Nope+n.V)+k)
			for t := range a.Q.Rows {
				q := float64(host.RowF32(a.Q, t)[h*n.QK()+k])
				sum := sums[t*n.Latent:][:n.Latent]
				for c, w := range row {
					sum[c] += q * w
				}
			}
		}
		for t := range a.Q.Rows {
			out := host.RowF32(a.Out, t)[h*n.Row():][:n.Row()]
			for c, v := range sums[t*n.Latent:][:n.Latent] {
				out[c] = float32(d.sum(v, kvb))
			}
			copy(out[n.Latent:], host.RowF32(a.Q, t)[h*n.QK()+n.Nope:])
		}
	}
	return nil
}

// expand projects attention outputs out of latent space.
func expand(d *Device, a kernel.ExpandArgs) error {
	if err := onlyF32("expand", a.Out, a.U); err != nil {
		return err
	}
	kvb, err := host.Own("expand", a.KVB)
	if err != nil {
		return err
	}
	n := a.Dims
	row := make([]float64, n.Latent)
	for h := range n.Heads {
		for v := range n.V {
			d.weightRow(row, kvb, h*(n.Nope+n.V)+n.Nope+v)
			for t := range a.U.Rows {
				u := host.RowF32(a.U, t)[h*n.Latent:][:n.Latent]
				host.RowF32(a.Out, t)[h*n.V+v] = float32(d.sum(dot(row, u), kvb))
			}
		}
	}
	return nil
}
