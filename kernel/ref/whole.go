package ref

import (
	"sparrow/internal/device/host"
	"sparrow/kernel"
	"sparrow/layout"
)

// latentAttend computes attention over every key of a sequence.
func latentAttend(d *Device, a kernel.LatentArgs) error {
	if err := onlyF32("latent attend", a.Out, a.Q); err != nil {
		return err
	}
	main, err := layout.MainOf(a.Pool.Layout)
	if err != nil {
		return err
	}
	if err := host.CheckLatent(&a); err != nil {
		return err
	}
	same := kernel.SparseArgs{Out: a.Out, Q: a.Q, Pool: a.Pool, Heads: a.Heads, Scale: a.Scale}
	for r := range a.Q.Rows {
		pages := host.RowI32(a.Table, int(host.RowI32(a.TableRow, r)[0]))
		rows := make([][]float32, max(int(host.RowI32(a.Lens, r)[0]), 0))
		for s := range rows {
			rows[s] = make([]float32, layout.Width(a.Pool.Layout))
			main.Decode(rows[s], host.Page(a.Pool, int(pages[s/a.Pool.PageTokens])), s%a.Pool.PageTokens)
		}
		for h := range a.Heads {
			d.attendHead(&same, r, h, rows)
		}
	}
	return nil
}
