package v4

import (
	"fmt"

	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/internal/model/nn"
	"sparrow/kernel"
)

// experts holds the weights of a layer's feed-forward block; exactly one of bias and table is given.
type experts struct {
	router kernel.Matrix // [experts, hidden]
	bias   kernel.Tensor // f32 [1, experts]: layers that choose by score
	table  kernel.Tensor // i32 [vocabulary, k]: layers that look experts up by token
	routed kernel.Experts
	part   kernel.Part // range of all experts that this rank has
	shared nn.MLP
}

// expertNames describes how the experts of a layer are chosen and how their tensors are named.
type expertNames struct {
	layer   int  // number of the layer; a drafting block follows the main layers
	hash    bool // whether experts are looked up by token
	stacked bool // whether all experts of a layer are in one tensor
}

func loadExperts(c *config.V4, l *nn.Loader, at func(string) string, x expertNames) experts {
	f := c.FFN
	e := experts{
		router: l.Matrix(at("ffn.gate.weight"), f.Experts, c.Hidden),
		shared: nn.LoadMLPOf(l, at("ffn.shared_experts.w1.weight"), at("ffn.shared_experts.w3.weight"),
			at("ffn.shared_experts.w2.weight"), c.Hidden, f.Inner*f.Shared),
	}
	e.shared.Limit = f.Limit
	if x.hash {
		e.table = l.Indices(at("ffn.gate.tid2eid"), c.Vocab, f.TopK, f.Experts)
	} else {
		e.bias = l.Vector(at("ffn.gate.bias"), f.Experts)
	}
	var w kernel.ExpertWeights
	if x.stacked {
		// Experts are stacked in two tensors: rows of gate before rows of up, and down.
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
	e.routed, e.part = l.Experts(x.layer, w), l.Ranks.Part(f.Experts)
	return e
}

// expertSpace holds the temporary tensors of a feed-forward block in a pass.
type expertSpace struct {
	shared       nn.MLPSpace
	logits       kernel.Tensor // f32 [T, experts]
	ids, weights kernel.Tensor // i32 and f32 [T, k]
}

func (e *experts) arrange(a *kernel.Arena, activation kernel.DType, rows, topK int) expertSpace {
	return expertSpace{shared: e.shared.Arrange(a, activation, rows), logits: a.Take(kernel.F32, rows, e.router.Out()),
		ids: a.Take(kernel.I32, rows, topK), weights: a.Take(kernel.F32, rows, topK)}
}

// feedForward writes the block's output for x to out: shared experts first, then the chosen experts, so that sums are
// always in the same order. tokens are the tokens of the rows, i32 [T, 1]. The first `prompt` rows belong to prompts.
// tap records or replaces the choice.
func (m *Model) feedForward(e *experts, s *expertSpace, out, x, tokens kernel.Tensor, prompt int,
	tap model.ExpertTap) {
	f, list := m.config.FFN, m.List
	run := kernel.ExpertArgs{Out: out, X: x, IDs: s.ids, Weights: s.weights, Experts: e.routed, Limit: f.Limit,
		Part: e.part, Prompt: prompt}
	shared := nn.MLPArgs{X: x, Out: out, With: kernel.Projection{Out: s.logits, W: e.router}}
	hosted := kernel.Hosted(e.routed)
	e.shared.Begin(list, &s.shared, shared)
	if !hosted {
		e.shared.Finish(list, &s.shared, shared)
	}
	if e.table.Given() {
		list.Add(kernel.HashRouteArgs{IDs: s.ids, Weights: s.weights, Logits: s.logits, Table: e.table,
			Tokens: tokens, Scale: f.Scale})
	} else {
		list.Add(kernel.RootRouteArgs{IDs: s.ids, Weights: s.weights, Logits: s.logits, Bias: e.bias,
			Scale: f.Scale})
	}
	tap.Pass(list, s.ids, s.weights)
	if hosted { // the shared experts run while workers on the host compute
		list.Add(kernel.PostArgs{ExpertArgs: run})
		e.shared.Finish(list, &s.shared, shared)
	}
	list.Add(run)
	list.Add(kernel.AllReduceArgs{X: out})
}
