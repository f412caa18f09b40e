// Package placed loads models for tests with some experts on the device under test, and the others on a CPU device with
// one worker. Experts may move between them.
package placed

import (
	"testing"

	"sparrow/internal/device/offload"
	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/model/placement"
	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
)

// Rule returns the placement for a model with the given number of layers, and of experts in each layer.
type Rule func(layers, experts int) *placement.Placement

// Half returns a placement in which half of every layer's experts are computed on the host.
func Half(layers, experts int) *placement.Placement { return placement.Uniform(layers, experts, 0.5) }

// All returns a placement in which all experts are computed on the host.
func All(layers, experts int) *placement.Placement { return placement.Uniform(layers, experts, 1) }

// HalfFetched returns a placement in which half of every layer's experts are fetched. On a GPU, fetched experts give
// results bitwise equal to those of resident experts.
func HalfFetched(layers, experts int) *placement.Placement {
	return placement.Split(layers, experts, 0.5, placement.Fetched, placement.Fetched)
}

// Mixed returns a placement with all combinations of methods for decodes and prompts, assigned to the experts of a
// layer in turn, beginning with a different expert in each layer.
func Mixed(layers, experts int) *placement.Placement {
	p := placement.Uniform(layers, experts, 0)
	for l := range layers {
		for e := range experts {
			p.Decode[l][e], p.Prefill[l][e] = placement.Method((l+e)%3), placement.Method((l+e)/3%3)
		}
	}
	return p
}

// Alike returns a placement like Mixed, but only with combinations of methods whose results are bitwise equal on a GPU.
// So a token that is computed again as part of a prompt has the same bits.
func Alike(layers, experts int) *placement.Placement {
	p := placement.Uniform(layers, experts, 0)
	pairs := [][2]placement.Method{{placement.Resident, placement.Resident}, {placement.Computed, placement.Computed},
		{placement.Fetched, placement.Fetched}, {placement.Fetched, placement.Resident},
		{placement.Resident, placement.Fetched}}
	for l := range layers {
		for e := range experts {
			pair := pairs[(l+e)%len(pairs)]
			p.Decode[l][e], p.Prefill[l][e] = pair[0], pair[1]
		}
	}
	return p
}

// Load loads a model. The host is closed when the test ends, before the device that the caller opened before.
func Load(t testing.TB, src *family.Source, dev kernel.Device, rule Rule) model.Model {
	t.Helper()
	return LoadOver(t, src, dev, cpu.Open(vec.Best(), kernel.Options{Workers: 1}), rule, offload.Options{})
}

// LoadOver is like Load; far is the device that computes the experts in host memory.
func LoadOver(t testing.TB, src *family.Source, dev, far kernel.Device, rule Rule, o offload.Options) model.Model {
	t.Helper()
	h, err := offload.New(far, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	p := rule(src.ExpertLayers())
	p.Shared = src.PlainExperts()
	m, err := src.LoadPlaced(dev, family.Placed{Placement: p, Host: h, Movable: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.OnHost(len(p.Decode)-1)) == 0 {
		t.Fatal("no expert is in host memory")
	}
	return m
}
