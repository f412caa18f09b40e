package attn

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/plan"
)

// dense attends with expanded keys and values. Every key, cached or new, is read through the cache's representation, so that a prompt gives
// the same bits however it was cut into chunks.
func (a *Attention) dense(s *segment, w *Weights, c Cache, q, out kernel.Tensor) error {
	if s.plan.Convert != plan.ConvertGatherRows {
		return fmt.Errorf("the dense form gathers rows from the cache, the plan says %v", s.plan.Convert)
	}
	d, act := a.params.Dims, a.dev.Activation()
	for i := range s.launches {
		l := &s.launches[i]
		rows, err := a.buf.rows.Take(act, l.keys, d.Row())
		if err != nil {
			return err
		}
		up, err := a.buf.up.Take(act, l.keys, d.KVB())
		if err != nil {
			return err
		}
		if err := a.dev.GatherRows(kernel.GatherArgs{Out: rows, Slots: l.flat, Pool: c.Main}); err != nil {
			return err
		}
		if err := a.dev.Multiply(kernel.MultiplyArgs{Out: up, X: rows.Columns(0, d.Latent), W: w.KVB}); err != nil {
			return err
		}
		err = a.dev.DenseAttend(kernel.DenseArgs{
			Out:   out.Slice(l.first, l.last),
			Q:     q.Slice(l.first, l.last),
			KV:    up,
			Rope:  rows.Columns(d.Latent, d.Row()),
			Start: a.step.start.Slice(l.first, l.last),
			Lens:  a.step.lens.Slice(l.first, l.last),
			Dims:  d,
			Scale: a.params.Scale,
		})
		if err != nil {
			return err
		}
	}
	return nil
}
