// Package placed loads models for tests with experts in two memories, which may move: on the device under test, and
// on a CPU device with one worker that computes the rest.
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

// Rule makes the placement of a model with that many layers and experts.
type Rule func(layers, experts int) *placement.Placement

// Half and All compute that share of every layer's experts on the host.
func Half(layers, experts int) *placement.Placement { return placement.Uniform(layers, experts, 0.5) }

// All computes all experts on the host.
func All(layers, experts int) *placement.Placement { return placement.Uniform(layers, experts, 1) }

// HalfFetched fetches half of every layer's experts: on a GPU they have the bits of resident ones.
func HalfFetched(layers, experts int) *placement.Placement {
	return placement.Split(layers, experts, 0.5, placement.Fetched, placement.Fetched)
}

// Mixed assigns all pairs of methods in turn to experts, starting with another expert in each layer.
func Mixed(layers, experts int) *placement.Placement {
	p := placement.Uniform(layers, experts, 0)
	for l := range layers {
		for e := range experts {
			p.Decode[l][e], p.Prefill[l][e] = placement.Method((l+e)%3), placement.Method((l+e)/3%3)
		}
	}
	return p
}

// Alike assigns in turn all pairs of methods that have the same bits on a GPU, so that a token that is computed again
// as part of a prompt has the same bits.
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

// LoadOver is Load with a device that computes the experts of the host.
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
	m, err := src.LoadPlaced(dev, family.Placed{Placement: p, Host: h, Movable: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.OnHost(len(p.Decode)-1)) == 0 {
		t.Fatal("no expert is in host memory")
	}
	return m
}
