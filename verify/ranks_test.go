package verify_test

import (
	"fmt"
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/group"
	"sparrow/kernel/ref"
	"sparrow/model"
	"sparrow/model/family"
	"sparrow/plan"
)

// openRanks loads a checkpoint on several ranks that must have the same bits wherever they are read.
func openRanks(t *testing.T, name, kernels string, ranks int, o kernel.Options) model.Model {
	t.Helper()
	src, err := family.Open(folder(name))
	if err != nil {
		t.Fatal(err)
	}
	o.Workers = 1
	var devs []kernel.Device
	for range ranks {
		dev, err := kernel.NewRegistry(cpu.Backends(), ref.Backends()).Open(kernels, o)
		if err != nil {
			t.Fatal(err)
		}
		devs = append(devs, dev)
	}
	g, err := group.New(devs, group.Options{Compare: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close(); src.Close() })
	m, err := src.LoadRanks(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Ranks that share a model agree with the independent implementation as one device does: heads, experts and vocabulary
// divided, FP8 weights cut between blocks and inside them, prompts whole and in chunks.
func TestRanks(t *testing.T) {
	for _, c := range []struct {
		name    string
		kernels string
		kv      string
		chunks  []int
	}{
		{"deepseek_v32-1", "cpu", "f32", []int{0}},
		{"deepseek_v32-fp8-1", "cpu", "f32", []int{64}},
		{"glm_moe_dsa-1", "cpu", "f32", []int{64}},
		{v4, "cpu", "f32", []int{129}},
		{"deepseek_v32-1", "cpu", "fp8", []int{0}},
	} {
		t.Run(fmt.Sprintf("%s/%s/%s", c.name, c.kernels, c.kv), func(t *testing.T) {
			m := openRanks(t, c.name, c.kernels, 2, kernel.Options{Precise: c.kv == "f32"})
			if got := m.Facts(); got.Ranks != 2 {
				t.Fatalf("%d ranks", got.Ranks)
			}
			for _, chunk := range c.chunks {
				run(t, c.name, m, plan.Policy{KV: c.kv}, chunk)
			}
		})
	}
}
