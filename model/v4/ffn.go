package v4

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/model/config"
	"sparrow/model/nn"
)

// experts is the feed-forward block of one layer: exactly one of bias and table is given.
type experts struct {
	router kernel.Matrix // [experts, hidden]
	bias   kernel.Tensor // f32 [1, experts]: layers that choose by score
	table  kernel.Tensor // i32 [vocabulary, k]: layers that look experts up by token
	routed kernel.Experts
	shared nn.MLP
}

// expertNames says how the experts of a layer are found and named.
type expertNames struct {
	hash    bool // looked up by token
	stacked bool // all of a layer in one tensor
}

func loadExperts(c *config.V4, l *nn.Loader, at func(string) string, x expertNames) experts {
	f := c.FFN
	e := experts{
		router: l.Matrix(at("ffn.gate.weight"), f.Experts, c.Hidden),
		shared: nn.MLP{
			Gate:  l.Matrix(at("ffn.shared_experts.w1.weight"), f.Inner*f.Shared, c.Hidden),
			Up:    l.Matrix(at("ffn.shared_experts.w3.weight"), f.Inner*f.Shared, c.Hidden),
			Down:  l.Matrix(at("ffn.shared_experts.w2.weight"), c.Hidden, f.Inner*f.Shared),
			Limit: f.Limit,
		},
	}
	if x.hash {
		e.table = l.Indices(at("ffn.gate.tid2eid"), c.Vocab, f.TopK, f.Experts)
	} else {
		e.bias = l.Vector(at("ffn.gate.bias"), f.Experts)
	}
	var w kernel.ExpertWeights
	if x.stacked {
		// Experts are stacked: gates above ups, then downs.
		for _, both := range l.Stack(at("ffn.experts.gate_up_proj"), f.Experts, 2*f.Inner, c.Hidden) {
			w.Gate, w.Up = append(w.Gate, both.Slice(0, f.Inner)), append(w.Up, both.Slice(f.Inner, 2*f.Inner))
		}
		w.Down = l.Stack(at("ffn.experts.down_proj"), f.Experts, c.Hidden, f.Inner)
	} else {
		for j := range f.Experts {
			p := fmt.Sprintf("ffn.experts.%d.", j)
			w.Gate = append(w.Gate, l.Weight(at(p+"w1.weight"), f.Inner, c.Hidden))
			w.Up = append(w.Up, l.Weight(at(p+"w3.weight"), f.Inner, c.Hidden))
			w.Down = append(w.Down, l.Weight(at(p+"w2.weight"), c.Hidden, f.Inner))
		}
	}
	e.routed = l.Experts(w)
	return e
}

// feedForward writes the block's output for x to out: shared experts first, then the chosen ones, so that a row's sum has one order.
func (m *Model) feedForward(e *experts, out, x kernel.Tensor) error {
	logits, err := m.buf.logit.Take(kernel.F32, x.Rows, e.router.Out())
	if err != nil {
		return err
	}
	ids, err := m.buf.chosen.Take(kernel.I32, x.Rows, m.config.FFN.TopK)
	if err != nil {
		return err
	}
	weights, err := m.buf.share.Take(kernel.F32, x.Rows, m.config.FFN.TopK)
	if err != nil {
		return err
	}
	err = e.shared.RunWith(m.dev, m.buf.ffn, nn.MLPArgs{X: x, Out: out, With: kernel.Projection{Out: logits, W: e.router}})
	if err != nil {
		return err
	}
	if e.table.Given() {
		err = m.dev.RouteHash(kernel.HashRouteArgs{IDs: ids, Weights: weights, Logits: logits, Table: e.table, Tokens: m.step.tokens, Scale: m.config.FFN.Scale})
	} else {
		err = m.dev.RouteRoot(kernel.RootRouteArgs{IDs: ids, Weights: weights, Logits: logits, Bias: e.bias, Scale: m.config.FFN.Scale})
	}
	if err != nil {
		return err
	}
	return m.dev.Experts(kernel.ExpertArgs{Out: out, X: x, IDs: ids, Weights: weights, Experts: e.routed,
		Limit: m.config.FFN.Limit})
}
