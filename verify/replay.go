package verify

import (
	"slices"

	"sparrow/internal/model"
	"sparrow/record"
)

// replay runs a case again with the choices that its first run recorded, which must give the same bits. As a check of
// the test, it also runs with other choices, which must give other bits.
func replay(c *Case, m model.Model, o *Options, g *Golden, first *outcome) error {
	by := options{chunk: o.Chunk, given: first.greedy, rows: true, replay: first.chosen}
	again, err := run(m, o.Config, g, by)
	if err != nil {
		return err
	}
	c.Replayed = len(first.chosen)
	if !sameBits(first, again) {
		c.addProblem("replayed choices give other logits than the run that made them")
	}
	by.replay = otherChoices(first.chosen)
	other, err := run(m, o.Config, g, by)
	if err != nil {
		return err
	}
	if sameBits(first, other) {
		c.addProblem("other choices than the recorded ones, replayed, give the same logits: they are not used")
	}
	return nil
}

// otherChoices returns rows with the same number of selected keys, but the first keys, and with the weights of their
// experts in the opposite order.
func otherChoices(rows []record.Row) []record.Row {
	out := slices.Clone(rows)
	for i := range out {
		out[i].Layers, out[i].Experts = slices.Clone(out[i].Layers), slices.Clone(out[i].Experts)
		for j := range out[i].Layers {
			if l := &out[i].Layers[j]; len(l.Selected) > 0 {
				l.Selected = record.AppendPositions(nil, everything(int32(record.CountPositions(l.Selected))),
					max(l.Group, 1))
			}
		}
		for j := range out[i].Experts {
			x := &out[i].Experts[j]
			w := x.Weights
			x.Weights = nil
			for at := len(w) - 4; at >= 0; at -= 4 {
				x.Weights = append(x.Weights, w[at:at+4]...)
			}
		}
	}
	return out
}
