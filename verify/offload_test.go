package verify_test

import (
	"testing"

	"sparrow/internal/testkit/placed"
	"sparrow/internal/testkit/strict"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/cpu/vec"
	"sparrow/kernel/cuda"
	"sparrow/kernel/cuda/op"
	"sparrow/model"
	"sparrow/model/family"
	"sparrow/plan"
	"sparrow/verify"
)

// offloadCase is a checkpoint with experts in two memories.
type offloadCase struct {
	name, kv string
	rule     placed.Rule
	chunk    int
}

// With half and with all of its experts in host memory a model agrees with the independent implementation.
func TestOffloaded(t *testing.T) {
	for _, c := range []offloadCase{
		{"deepseek_v32-1", "f32", placed.Half, 0}, {"deepseek_v32-fp8-1", "f32", placed.All, 64},
		{"glm_moe_dsa-1", "f32", placed.All, 0}, {v4, "f32", placed.Half, 129},
	} {
		c.run(t, cpu.Open(vec.Best(), kernel.Options{Precise: true}))
	}
}

// The same by the rules of a GPU, with bf16 activations.
func TestOffloadedByADevicesRules(t *testing.T) {
	for _, c := range []offloadCase{
		{"deepseek_v32-fp8-1", "fp8", placed.Mixed, 61}, {"glm_moe_dsa-1", "fp8", placed.All, 0},
	} {
		dev, err := strict.Open(cpu.Open(vec.Best(), kernel.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		c.run(t, dev)
	}
}

func TestGPUOffloaded(t *testing.T) {
	if err := cuda.Available(); err != nil {
		t.Skipf("needs a Hopper GPU: %v", err)
	}
	for _, c := range []offloadCase{
		{"deepseek_v32-1", "fp8", placed.Half, 0}, {"deepseek_v32-1", "bf16", placed.All, 61},
		{"deepseek_v32-fp8-1", "fp8", placed.Half, 61}, {"deepseek_v32-fp8-1", "fp8", placed.All, 0},
		{"glm_moe_dsa-1", "fp8", placed.All, 61}, {"glm_moe_dsa-1", "fp8", placed.Mixed, 0},
		{v4, "fp8", placed.Half, 0}, {v4, "fp8", placed.All, 129}, {v4, "fp8", placed.Mixed, 61},
	} {
		dev, err := op.Open(0)
		if err != nil {
			t.Fatal(err)
		}
		c.run(t, dev)
	}
}

// run compares a model on a device, which it closes, with the golden outputs.
func (c offloadCase) run(t *testing.T, dev kernel.Device) {
	t.Run(c.name+"/"+c.kv, func(t *testing.T) {
		t.Cleanup(func() { dev.Close() })
		src, err := family.Open(folder(c.name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { src.Close() })
		m := placed.Load(t, src, dev, c.rule)
		hw, err := model.Hardware(dev)
		if err != nil {
			t.Fatal(err)
		}
		cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: c.kv})
		if err != nil {
			t.Fatal(err)
		}
		r, err := verify.Run(folder(c.name), m, verify.Options{Config: cfg, Chunk: c.chunk})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range r.Cases {
			if len(x.Problems) > 0 {
				t.Errorf("chunks of %d: %s: %v", c.chunk, x.Name, x.Problems)
			}
		}
	})
}
