package op

import (
	"slices"
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// Experts are fused with a held choice only if its ids, its weights and its rows are those of the experts; otherwise
// the choice is launched by itself.
func TestHeldChoicesOfOtherTensors(t *testing.T) {
	d := withoutGPU(t)
	tensor := func(kind kernel.DType, rows, cols int) kernel.Tensor {
		x, err := kernel.New(d, kind, rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	var w kernel.ExpertWeights
	for range 8 {
		w.Gate, w.Up = append(w.Gate, stored(kernel.BF16, 128, 256, 0)), append(w.Up, stored(kernel.BF16, 128, 256, 0))
		w.Down = append(w.Down, stored(kernel.BF16, 256, 128, 0))
	}
	experts, err := d.PrepareExperts(w)
	if err != nil {
		t.Fatal(err)
	}
	ids, weights := tensor(kernel.I32, 5, 3), tensor(kernel.F32, 5, 3)
	route := kernel.RouteArgs{IDs: ids, Weights: weights, Logits: tensor(kernel.F32, 5, 8),
		Bias: tensor(kernel.F32, 1, 8), Groups: 1, KeepGroups: 1, Scale: 1}
	run := kernel.ExpertArgs{Out: tensor(kernel.BF16, 5, 256), X: tensor(kernel.BF16, 5, 256), IDs: ids,
		Weights: weights, Experts: experts}
	launched := func(list ...kernel.Op) (names []string) {
		d.gpu.Watch(func(kernel string, _ cuda.Launch, _ any) { names = append(names, kernel) })
		defer d.gpu.Watch(nil)
		for _, op := range list {
			if err := kernel.Do(d, op); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		return names
	}
	apart := slices.Concat(launched(route), launched(run))
	if together := launched(route, run); len(together) >= len(apart) {
		t.Errorf("a choice and its experts launch %v, apart %v", together, apart)
	}
	otherIDs, otherWeights, fewer := run, run, run
	otherIDs.IDs, otherWeights.Weights = tensor(kernel.I32, 5, 3), tensor(kernel.F32, 5, 3)
	fewer.X, fewer.Out = run.X.Slice(0, 4), run.Out.Slice(0, 4)
	fewer.IDs, fewer.Weights = ids.Slice(0, 4), weights.Slice(0, 4)
	for name, other := range map[string]kernel.ExpertArgs{"numbers": otherIDs, "weights": otherWeights, "rows": fewer} {
		want := slices.Concat(launched(route), launched(other))
		if got := launched(route, other); !slices.Equal(got, want) {
			t.Errorf("experts of other %s launch %v, want %v", name, got, want)
		}
	}
}
