package nn

import (
	"fmt"

	"sparrow/kernel"
)

// MLP is a gated feed-forward block: down(silu(gate x) * up x), with gate and up clamped where there is a Limit (kernel.GateArgs).
type MLP struct {
	Gate, Up, Down kernel.Matrix
	Limit          float32
}

// LoadMLP loads prefix+"gate_proj.weight" and its siblings.
func LoadMLP(l *Loader, prefix string, hidden, inner int) MLP {
	return MLP{
		Gate: l.Matrix(prefix+"gate_proj.weight", inner, hidden),
		Up:   l.Matrix(prefix+"up_proj.weight", inner, hidden),
		Down: l.Matrix(prefix+"down_proj.weight", hidden, inner),
	}
}

// FFNScratch is the memory feed-forward blocks work in.
type FFNScratch struct {
	gate, up, logits, ids, weights kernel.Scratch
	to                             []kernel.Projection // of the products in progress
}

// NewFFNScratch makes empty scratch memory.
func NewFFNScratch(mem kernel.Memory) *FFNScratch {
	return &FFNScratch{gate: kernel.NewScratch(mem), up: kernel.NewScratch(mem), logits: kernel.NewScratch(mem), ids: kernel.NewScratch(mem), weights: kernel.NewScratch(mem)}
}

// Run adds the block's output for x to h.
func (m *MLP) Run(dev kernel.Device, s *FFNScratch, h, x kernel.Tensor) error {
	return m.RunWith(dev, s, MLPArgs{X: x, Out: h, Add: true})
}

// MLPArgs is a run of a block.
type MLPArgs struct {
	X   kernel.Tensor // activation [T, hidden]
	Out kernel.Tensor // activation [T, hidden]
	Add bool          // to what Out holds
	// With is a product of X that is computed with the block's own, such as a router's; not given for none.
	With kernel.Projection
}

// RunWith computes the block's output and another product of its input. Products of the same rows go together.
func (m *MLP) RunWith(dev kernel.Device, s *FFNScratch, a MLPArgs) error {
	gate, err := s.gate.Take(dev.Activation(), a.X.Rows, m.Gate.Out())
	if err != nil {
		return err
	}
	up, err := s.up.Take(dev.Activation(), a.X.Rows, m.Up.Out())
	if err != nil {
		return err
	}
	s.to = append(s.to[:0], kernel.Projection{Out: gate, W: m.Gate}, kernel.Projection{Out: up, W: m.Up})
	if a.With.Out.Given() {
		s.to = append(s.to, a.With)
	}
	if err := dev.Project(kernel.ProjectArgs{X: a.X, To: s.to}); err != nil {
		return err
	}
	if err := dev.Gate(kernel.GateArgs{Out: gate, Gate: gate, Up: up, Limit: m.Limit}); err != nil {
		return err
	}
	return dev.Multiply(kernel.MultiplyArgs{Out: a.Out, X: gate, W: m.Down, Accumulate: a.Add})
}

// MoE is a mixture of experts with shared experts that every token passes.
type MoE struct {
	Router  kernel.Matrix // [experts, hidden]
	Bias    kernel.Tensor // f32 [1, experts]: for the choice only
	Experts kernel.Experts
	Shared  *MLP // nil without shared experts
	Choice  Choice
}

// Choice is how experts are chosen.
type Choice struct {
	TopK, Groups, KeepGroups int
	Normalize                bool
	Scale                    float32
}

// MoEShape is the sizes of a mixture of experts.
type MoEShape struct{ Hidden, Inner, Experts, Shared int }

// LoadMoE loads router, experts and shared experts below prefix.
func LoadMoE(l *Loader, prefix string, s MoEShape, c Choice) MoE {
	m := MoE{
		Router: l.Matrix(prefix+"gate.weight", s.Experts, s.Hidden),
		Bias:   l.Vector(prefix+"gate.e_score_correction_bias", s.Experts),
		Choice: c,
	}
	var w kernel.ExpertWeights
	for e := range s.Experts {
		p := fmt.Sprintf("%sexperts.%d.", prefix, e)
		w.Gate = append(w.Gate, l.Weight(p+"gate_proj.weight", s.Inner, s.Hidden))
		w.Up = append(w.Up, l.Weight(p+"up_proj.weight", s.Inner, s.Hidden))
		w.Down = append(w.Down, l.Weight(p+"down_proj.weight", s.Hidden, s.Inner))
	}
	m.Experts = l.Experts(w)
	if s.Shared > 0 {
		x := LoadMLP(l, prefix+"shared_experts.", s.Hidden, s.Inner*s.Shared)
		m.Shared = &x
	}
	return m
}

// Run adds the weighted experts and the shared ones to h. The shared experts come first, so a row's sum has one order.
func (m *MoE) Run(dev kernel.Device, s *FFNScratch, h, x kernel.Tensor) error {
	logits, err := s.logits.Take(kernel.F32, x.Rows, m.Router.Out())
	if err != nil {
		return err
	}
	ids, err := s.ids.Take(kernel.I32, x.Rows, m.Choice.TopK)
	if err != nil {
		return err
	}
	weights, err := s.weights.Take(kernel.F32, x.Rows, m.Choice.TopK)
	if err != nil {
		return err
	}
	if m.Shared != nil {
		err = m.Shared.RunWith(dev, s, MLPArgs{X: x, Out: h, Add: true, With: kernel.Projection{Out: logits, W: m.Router}})
	} else {
		err = dev.Multiply(kernel.MultiplyArgs{Out: logits, X: x, W: m.Router})
	}
	if err != nil {
		return err
	}
	err = dev.Route(kernel.RouteArgs{IDs: ids, Weights: weights, Logits: logits, Bias: m.Bias, Groups: m.Choice.Groups,
		KeepGroups: m.Choice.KeepGroups, Normalize: m.Choice.Normalize, Scale: m.Choice.Scale})
	if err != nil {
		return err
	}
	return dev.Experts(kernel.ExpertArgs{Out: h, X: x, IDs: ids, Weights: weights, Experts: m.Experts})
}
