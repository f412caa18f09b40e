package nn

import (
	"fmt"

	"sparrow/kernel"
)

// RootShape holds the sizes of a feed-forward block whose router uses the square root of softplus.
type RootShape struct {
	Hidden, Inner, Experts, Shared, TopK int
	Scale, Limit                         float32
}

// RootExperts is the feed-forward block of one layer: shared experts, and routed experts that are chosen by score and
// bias.
type RootExperts struct {
	shape  RootShape
	router kernel.Matrix // [experts, hidden]
	bias   kernel.Tensor // f32 [1, experts]
	routed kernel.Experts
	part   kernel.Part // range of all experts that routed has
	shared MLP
}

// LoadRootExperts loads the feed-forward block of a layer; at returns the full name of each of its tensors.
func LoadRootExperts(l *Loader, layer int, at func(string) string, s RootShape) RootExperts {
	e := RootExperts{shape: s,
		router: l.Matrix(at("ffn.gate.weight"), s.Experts, s.Hidden),
		bias:   l.Vector(at("ffn.gate.bias"), s.Experts),
		shared: LoadMLPOf(l, at("ffn.shared_experts.w1.weight"), at("ffn.shared_experts.w3.weight"),
			at("ffn.shared_experts.w2.weight"), s.Hidden, s.Inner*s.Shared),
	}
	e.shared.Limit = s.Limit
	var w kernel.ExpertWeights
	for j := range s.Experts {
		p := fmt.Sprintf("ffn.experts.%d.", j)
		w.Gate = append(w.Gate, l.Weight(at(p+"w1.weight"), s.Inner, s.Hidden))
		w.Up = append(w.Up, l.Weight(at(p+"w3.weight"), s.Inner, s.Hidden))
		w.Down = append(w.Down, l.Weight(at(p+"w2.weight"), s.Hidden, s.Inner))
	}
	e.routed, e.part = l.Experts(layer, w), l.Ranks.Part(s.Experts)
	return e
}

// RootSpace holds the temporary tensors of a block in a pass.
type RootSpace struct {
	shared       MLPSpace
	logits       kernel.Tensor // f32 [T, experts]
	ids, weights kernel.Tensor // i32 and f32 [T, k]
}

// Arrange takes the temporary tensors for the given number of rows from an arena.
func (e *RootExperts) Arrange(a *kernel.Arena, activation kernel.DType, rows int) RootSpace {
	return RootSpace{shared: e.shared.Arrange(a, activation, rows), logits: a.Take(kernel.F32, rows, e.router.Out()),
		ids: a.Take(kernel.I32, rows, e.shape.TopK), weights: a.Take(kernel.F32, rows, e.shape.TopK)}
}

// Tap records or replaces the choice of experts.
type Tap interface {
	Pass(list *kernel.Builder, experts, weights kernel.Tensor)
}

// Add adds the operations of the block, which write the output for x to out: shared experts first, then the chosen
// experts, so that sums are always in the same order. The first `prompt` rows belong to prompts. tap records or
// replaces the choice.
func (e *RootExperts) Add(list *kernel.Builder, s *RootSpace, out, x kernel.Tensor, prompt int, tap Tap) {
	run := kernel.ExpertArgs{Out: out, X: x, IDs: s.ids, Weights: s.weights, Experts: e.routed, Limit: e.shape.Limit,
		Part: e.part, Prompt: prompt}
	shared := MLPArgs{X: x, Out: out, With: kernel.Projection{Out: s.logits, W: e.router}}
	hosted := kernel.Hosted(e.routed)
	e.shared.Begin(list, &s.shared, shared)
	if !hosted {
		e.shared.Finish(list, &s.shared, shared)
	}
	list.Add(kernel.RootRouteArgs{IDs: s.ids, Weights: s.weights, Logits: s.logits, Bias: e.bias, Scale: e.shape.Scale})
	tap.Pass(list, s.ids, s.weights)
	if hosted { // the shared experts run while workers on the host compute
		list.Add(kernel.PostArgs{ExpertArgs: run})
		e.shared.Finish(list, &s.shared, shared)
	}
	list.Add(run)
	list.Add(kernel.AllReduceArgs{X: out})
}
