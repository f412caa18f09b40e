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
func openRanks(t *testing.T, name, kernels string, ranks int, how plan.Division, o kernel.Options) model.Model {
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
	m, err := src.LoadRanks(g, how, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Ranks that share a model agree with the independent implementation as one device does: heads or requests, experts and
// vocabulary divided, FP8 weights cut between blocks and inside them, prompts whole and in chunks.
func TestRanks(t *testing.T) {
	for _, c := range []struct {
		name  string
		kv    string
		ranks int
		how   plan.Division
		chunk int
	}{
		{"deepseek_v32-1", "f32", 2, plan.ByHeads, 0},
		{"deepseek_v32-fp8-1", "f32", 2, plan.ByHeads, 64},
		{"glm_moe_dsa-1", "f32", 2, plan.ByHeads, 64},
		{v4, "f32", 2, plan.ByHeads, 129},
		{"deepseek_v32-1", "fp8", 2, plan.ByHeads, 0},
		{"deepseek_v32-1", "f32", 2, plan.ByRequests, 64},
		{"deepseek_v32-fp8-1", "f32", 4, plan.ByRequests, 0},
		{"glm_moe_dsa-1", "f32", 2, plan.ByRequests, 0},
		{"glm_moe_dsa-1", "f32", 4, plan.ByRequests, 64},
		{v4, "f32", 2, plan.ByRequests, 0},
		{v4, "f32", 4, plan.ByRequests, 129},
		{"deepseek_v32-1", "fp8", 4, plan.ByRequests, 64},
	} {
		t.Run(fmt.Sprintf("%s/%s/%d ranks %v", c.name, c.kv, c.ranks, c.how), func(t *testing.T) {
			m := openRanks(t, c.name, "cpu", c.ranks, c.how, kernel.Options{Precise: c.kv == "f32"})
			if got := m.Facts(); got.Ranks != c.ranks || got.Division != c.how {
				t.Fatalf("%d ranks %v", got.Ranks, got.Division)
			}
			run(t, c.name, m, plan.Policy{KV: c.kv}, c.chunk)
		})
	}
}
