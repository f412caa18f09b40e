package verify_test

import (
	"testing"

	"sparrow/internal/testkit/placed"
	"sparrow/internal/testkit/strict"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/cpu/vec"
	"sparrow/model"
	"sparrow/model/family"
	"sparrow/plan"
	"sparrow/verify"
)

// With half and with all of its experts in host memory a model agrees with the independent implementation: on CPUs, and
// by the rules of a GPU, with bf16 activations.
func TestOffloaded(t *testing.T) {
	for _, c := range []struct {
		name, kv string
		rule     placed.Rule
		chunk    int
		strict   bool
	}{
		{"deepseek_v32-1", "f32", placed.Half, 0, false},
		{"deepseek_v32-fp8-1", "f32", placed.All, 64, false},
		{"glm_moe_dsa-1", "f32", placed.All, 0, false},
		{v4, "f32", placed.Half, 129, false},
		{v4, "f32", placed.All, 0, false},
		{"deepseek_v32-fp8-1", "fp8", placed.Half, 61, true},
		{v4, "fp8", placed.All, 61, true},
	} {
		t.Run(c.name+"/"+c.kv, func(t *testing.T) {
			src, err := family.Open(folder(c.name))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { src.Close() })
			var dev kernel.Device = cpu.Open(vec.Best(), kernel.Options{Precise: !c.strict})
			if c.strict {
				if dev, err = strict.Open(dev); err != nil {
					t.Fatal(err)
				}
			}
			t.Cleanup(func() { dev.Close() })
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
}
