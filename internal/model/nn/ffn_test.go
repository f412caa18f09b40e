package nn_test

import (
	"math"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/model"
	"sparrow/internal/model/nn"
	"sparrow/kernel"
	"sparrow/kernel/ref"
)

func values(t *testing.T, rows, cols int, v ...float32) kernel.Tensor {
	t.Helper()
	x, err := kernel.New(&ref.Device{}, kernel.F32, rows, cols)
	if err == nil {
		err = kernel.WriteF32(&ref.Device{}, x, v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// block returns a feed-forward block over one value: down * silu(gate x) * up x.
func block(t *testing.T, gate, up, down float32) nn.MLP {
	w := func(v float32) kernel.Matrix { return prepare(t, one(t, v)) }
	return nn.MLP{Gate: w(gate), Up: w(up), Down: w(down)}
}

func one(t *testing.T, v float32) kernel.Weight { return kernel.Weight{Data: values(t, 1, 1, v)} }

func prepare(t *testing.T, w kernel.Weight) kernel.Matrix {
	t.Helper()
	m, err := (&ref.Device{}).Prepare(w, kernel.Projected)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func arena(t *testing.T, dev kernel.Device) *kernel.Arena {
	t.Helper()
	a, err := kernel.NewArena(dev, 1<<12)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func silu(x float64) float64 { return x / (1 + math.Exp(-x)) }

// For x = 2 the block computes 10 * silu(1*2) * 3*2 and adds it to the previous value, 5.
func TestMLPAddsToTheResidual(t *testing.T) {
	dev := &ref.Device{}
	h := values(t, 1, 1, 5)
	m := block(t, 1, 3, 10)
	list, mem := kernel.NewBuilder(dev, kernel.Member{}), arena(t, dev)
	space := m.Arrange(mem, kernel.F32, 1)
	m.Run(list, &space, nn.MLPArgs{X: values(t, 1, 1, 2), Out: h, Add: true})
	if err := list.Run(); err != nil || !mem.Fits() {
		t.Fatal(err, mem.High())
	}
	if got, want := float64(host.F32(h)[0]), 5+60*silu(2); math.Abs(got-want) > 1e-4 {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Three experts with router weights 1, 2, -1: for x = 2 the logits are 2, 4, -2. With a bias of 9 expert 2 is first,
// and expert 1 is second. Their weights are sigmoid(-2) and sigmoid(4), divided by their sum and times 2.5; the shared
// expert is not scaled.
func TestMoE(t *testing.T) {
	dev := &ref.Device{}
	shared := block(t, 1, 1, 100)
	m := nn.MoE{Router: prepare(t, kernel.Weight{Data: values(t, 3, 1, 1, 2, -1)}), Bias: values(t, 1, 3, 0, 0, 9),
		Shared: &shared, Choice: nn.Choice{TopK: 2, Groups: 1, KeepGroups: 1, Normalize: true, Scale: 2.5}}
	var w kernel.ExpertWeights
	for _, down := range []float32{1, 10, 20} {
		w.Gate, w.Up, w.Down = append(w.Gate, one(t, 1)), append(w.Up, one(t, 1)), append(w.Down, one(t, down))
	}
	var err error
	if m.Experts, err = dev.PrepareExperts(w); err != nil {
		t.Fatal(err)
	}
	s2, s1 := 1/(1+math.Exp(2)), 1/(1+math.Exp(-4))
	ffn := silu(2) * 2
	routed := 2.5 * (s2*20*ffn + s1*10*ffn) / (s1 + s2)
	for _, c := range []struct {
		name   string
		shared *nn.MLP
		want   float64
	}{{"with a shared expert", &shared, 7 + 100*ffn + routed}, {"without", nil, 7 + routed}} {
		m.Shared = c.shared
		h := values(t, 1, 1, 7)
		list, mem := kernel.NewBuilder(dev, kernel.Member{}), arena(t, dev)
		space := m.Arrange(mem, kernel.F32, 1)
		m.Run(list, &space, h, values(t, 1, 1, 2), 0, model.ExpertTap{})
		if err := list.Run(); err != nil || !mem.Fits() {
			t.Fatal(err, mem.High())
		}
		if got := float64(host.F32(h)[0]); math.Abs(got-c.want) > 1e-3 {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}
