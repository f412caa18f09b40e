package step_test

import (
	"slices"
	"sync"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/plan"
)

// Two models of a process, each on its own device, share no mutable data: when they run at the same time with different
// caches, each model gives logits bitwise equal to those that it gives alone. The race detector finds no shared access.
func TestTwoModelsAtOnce(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			src, err := family.Open(f.checkpoint(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { src.Close() })
			policies := []plan.Policy{{Speculation: plan.Speculation{Tokens: 3}}, {KV: "f32",
				Speculation: plan.Speculation{Tokens: 3}}}
			load := func() model.Model {
				dev, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Workers: 2})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { dev.Close() })
				m, err := src.Load(dev, nil)
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			var models []model.Model
			var want, got [2][][]float32
			for i, p := range policies {
				models = append(models, load())
				want[i] = hostMemory(t, models[i], p, false)
			}
			var both sync.WaitGroup
			for i, p := range policies {
				both.Go(func() { got[i] = hostMemory(t, models[i], p, false) })
			}
			both.Wait()
			for i := range policies {
				(&bench{T: t}).sameBits("at once", got[i], want[i])
			}
			if slices.Equal(want[0][0], want[1][0]) {
				t.Error("the two models give equal logits, want different logits because of their different caches")
			}
		})
	}
}
