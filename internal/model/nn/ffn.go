package nn

import (
	"fmt"

	"sparrow/internal/model"
	"sparrow/kernel"
)

// MLP is a gated feed-forward block: down(silu(gate x) * up x). Gate and up are clamped if there is a Limit
// (kernel.GateArgs). With several ranks, each rank has some rows of gate and up, and the corresponding columns of down,
// so its output is a part of a sum over ranks.
type MLP struct {
	Gate, Up, Down kernel.Matrix
	Limit          float32
	joins          bool // the device can multiply by joined matrices (kernel.Joiner)
}

// LoadMLP loads the gate, up and down projections: prefix+"gate_proj.weight" and so on.
func LoadMLP(l *Loader, prefix string, hidden, inner int) MLP {
	return LoadMLPOf(l, prefix+"gate_proj.weight", prefix+"up_proj.weight", prefix+"down_proj.weight", hidden, inner)
}

// LoadMLPOf loads the projections with the given names.
func LoadMLPOf(l *Loader, gate, up, down string, hidden, inner int) MLP {
	m := MLP{Gate: l.MatrixRows(gate, inner, hidden), Up: l.MatrixRows(up, inner, hidden),
		Down: l.MatrixColumns(down, hidden, inner)}
	m.joins = l.Join(func(j kernel.Joiner) error { return j.Join(m.Gate, m.Up) })
	return m
}

// MLPSpace holds the temporary tensors of a block in a pass: activation [T, inner] each.
type MLPSpace struct {
	gate, up kernel.Tensor
}

// Arrange takes the temporary tensors for the given number of rows from an arena.
func (m *MLP) Arrange(a *kernel.Arena, activation kernel.DType, rows int) MLPSpace {
	if n := m.Gate.Out(); m.joins && n == m.Up.Out() {
		both := a.Take(activation, rows, 2*n)
		return MLPSpace{gate: both.Columns(0, n), up: both.Columns(n, 2*n)}
	}
	return MLPSpace{gate: a.Take(activation, rows, m.Gate.Out()), up: a.Take(activation, rows, m.Up.Out())}
}

// MLPArgs are the arguments of Run.
type MLPArgs struct {
	X   kernel.Tensor // activation [T, hidden]: input rows
	Out kernel.Tensor // activation [T, hidden]: the rank's part of the sum
	Add bool          // the output is added to the values of Out
	// With is another product of X, such as the router's, that is computed together with those of the block; it may be
	// the zero Projection.
	With kernel.Projection
}

// Run computes the block's output and, if With is given, another product of its input.
func (m *MLP) Run(list *kernel.Builder, s *MLPSpace, a MLPArgs) {
	m.Begin(list, s, a)
	m.Finish(list, s, a)
}

// Begin adds the first part of Run: the products with the input rows.
func (m *MLP) Begin(list *kernel.Builder, s *MLPSpace, a MLPArgs) {
	to := []kernel.Projection{{Out: s.gate, W: m.Gate}, {Out: s.up, W: m.Up}}
	if a.With.Out.Given() {
		to = append(to, a.With)
	}
	list.Add(kernel.ProjectArgs{X: a.X, To: to})
}

// Finish adds the second part of Run.
func (m *MLP) Finish(list *kernel.Builder, s *MLPSpace, a MLPArgs) {
	list.Add(kernel.GateArgs{Out: s.gate, Gate: s.gate, Up: s.up, Limit: m.Limit})
	list.Add(kernel.MultiplyArgs{Out: a.Out, X: s.gate, W: m.Down, Accumulate: a.Add})
}

// MoE is a mixture of experts with shared experts that process every token.
type MoE struct {
	Router  kernel.Matrix // [experts, hidden]
	Bias    kernel.Tensor // f32 [1, experts]: added to scores for the choice only
	Experts kernel.Experts
	Part    kernel.Part // range of all experts that this rank has
	Shared  *MLP        // nil without shared experts
	Choice  Choice
	Limit   float32 // limit to which gate and up of experts are clamped (kernel.GateArgs); 0: not clamped
}

// SetLimit sets the limit to which gate and up of all experts, including shared experts, are clamped.
func (m *MoE) SetLimit(limit float32) {
	if m.Limit = limit; m.Shared != nil {
		m.Shared.Limit = limit
	}
}

// Choice describes how experts are chosen.
type Choice struct {
	TopK, Groups, KeepGroups int
	Normalize                bool
	Scale                    float32
}

// MoEShape holds the sizes of a mixture of experts.
type MoEShape struct{ Hidden, Inner, Experts, Shared int }

// LoadMoE loads router, experts and shared experts of a layer; prefix is the prefix of their tensor names.
func LoadMoE(l *Loader, layer int, prefix string, s MoEShape, c Choice) MoE {
	m := MoE{
		Router: l.Matrix(prefix+"gate.weight", s.Experts, s.Hidden),
		Bias:   l.Vector(prefix+"gate.e_score_correction_bias", s.Experts),
		Choice: c,
		Part:   l.Ranks.Part(s.Experts),
	}
	var w kernel.ExpertWeights
	for e := range s.Experts {
		p := fmt.Sprintf("%sexperts.%d.", prefix, e)
		w.Gate = append(w.Gate, l.Weight(p+"gate_proj.weight", s.Inner, s.Hidden))
		w.Up = append(w.Up, l.Weight(p+"up_proj.weight", s.Inner, s.Hidden))
		w.Down = append(w.Down, l.Weight(p+"down_proj.weight", s.Hidden, s.Inner))
	}
	m.Experts = l.Experts(layer, w)
	if s.Shared > 0 {
		x := LoadMLP(l, prefix+"shared_experts.", s.Hidden, s.Inner*s.Shared)
		m.Shared = &x
	} else if l.Ranks.Count() > 1 {
		l.addProblem("%s has no shared experts, which several ranks need: a rank adds the sum of its own experts to "+
			"theirs; run on one rank",
			prefix)
	}
	return m
}

// MoESpace holds the temporary tensors of a mixture of experts in a pass.
type MoESpace struct {
	shared       MLPSpace
	logits       kernel.Tensor // f32 [T, experts]
	ids, weights kernel.Tensor // i32 and f32 [T, k]
}

// Arrange takes the temporary tensors for the given number of rows from an arena.
func (m *MoE) Arrange(a *kernel.Arena, activation kernel.DType, rows int) MoESpace {
	s := MoESpace{logits: a.Take(kernel.F32, rows, m.Router.Out()), ids: a.Take(kernel.I32, rows, m.Choice.TopK),
		weights: a.Take(kernel.F32, rows, m.Choice.TopK)}
	if m.Shared != nil {
		s.shared = m.Shared.Arrange(a, activation, rows)
	}
	return s
}

// Run adds the weighted experts and the shared experts to h. The shared experts come first, so that the sum of a row
// has a fixed order. With several ranks, the first rank adds its part to h and the other ranks overwrite h with their
// parts; the caller sums over ranks. tap records or replaces the choice of experts. The first `prompt` rows belong to
// prompts.
func (m *MoE) Run(list *kernel.Builder, s *MoESpace, h, x kernel.Tensor, prompt int, tap model.ExpertTap) {
	m.run(list, s, h, x, prompt, tap, list.First())
}

// Write is like Run, but overwrites h. The model must have shared experts, whose output is written first.
func (m *MoE) Write(list *kernel.Builder, s *MoESpace, h, x kernel.Tensor, prompt int, tap model.ExpertTap) {
	m.run(list, s, h, x, prompt, tap, false)
}

func (m *MoE) run(list *kernel.Builder, s *MoESpace, h, x kernel.Tensor, prompt int, tap model.ExpertTap, add bool) {
	run := kernel.ExpertArgs{Out: h, X: x, IDs: s.ids, Weights: s.weights, Experts: m.Experts, Part: m.Part,
		Prompt: prompt, Limit: m.Limit}
	shared := MLPArgs{X: x, Out: h, Add: add, With: kernel.Projection{Out: s.logits, W: m.Router}}
	hosted := kernel.Hosted(m.Experts)
	if m.Shared != nil {
		m.Shared.Begin(list, &s.shared, shared)
	} else {
		list.Add(kernel.MultiplyArgs{Out: s.logits, X: x, W: m.Router})
	}
	if m.Shared != nil && !hosted {
		m.Shared.Finish(list, &s.shared, shared)
	}
	list.Add(kernel.RouteArgs{IDs: s.ids, Weights: s.weights, Logits: s.logits, Bias: m.Bias, Groups: m.Choice.Groups,
		KeepGroups: m.Choice.KeepGroups, Normalize: m.Choice.Normalize, Scale: m.Choice.Scale})
	tap.Pass(list, s.ids, s.weights)
	if hosted { // the shared experts run while workers on the host compute
		list.Add(kernel.PostArgs{ExpertArgs: run})
		if m.Shared != nil {
			m.Shared.Finish(list, &s.shared, shared)
		}
	}
	list.Add(run)
}
