package verify_test

import (
	"strings"
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
	"sparrow/kernel/cuda/op"
	"sparrow/model"
	"sparrow/model/family"
	"sparrow/plan"
	"sparrow/verify"
)

// The oracle checkpoints on a GPU: every layout that it has, whole prompts and chunks. Activations are bf16, and rows that meet FP8 weights are
// quantised, so answers are judged as those of rounded caches.
func TestGPUOracle(t *testing.T) {
	if err := cuda.Available(); err != nil {
		t.Skipf("needs a Hopper GPU: %v", err)
	}
	for _, name := range checkpoints {
		src, err := family.Open(folder(name))
		if err != nil {
			t.Fatal(err)
		}
		dev, err := kernel.NewRegistry(op.Backends()).Open("cuda", kernel.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close(); src.Close() })
		m, err := src.Load(dev, nil)
		if err != nil {
			t.Fatal(err)
		}
		hw, err := model.Hardware(dev)
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range []string{"bf16", "fp8-656", "fp8-576"} {
			for _, chunk := range []int{0, 61} {
				cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: kv})
				if err != nil {
					t.Fatal(err)
				}
				r, err := verify.Run(folder(name), m, verify.Options{Config: cfg, Chunk: chunk})
				if err != nil {
					t.Fatalf("%s %s: %v", name, kv, err)
				}
				var text strings.Builder
				if err := r.Print(&text); err != nil {
					t.Fatal(err)
				}
				t.Log(text.String())
				for _, c := range r.Cases {
					// Rows of eight bits without scales leave the long case of random weights no margin.
					if len(c.Problems) > 0 && (kv != "fp8-576" || c.Name != "long") {
						t.Errorf("%s %s in chunks of %d: %s: %v", name, kv, chunk, c.Name, c.Problems)
					}
				}
			}
		}
	}
}
