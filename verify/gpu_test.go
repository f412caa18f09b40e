package verify_test

import (
	"strings"
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
	"sparrow/kernel/cuda/op"
)

// The oracle checkpoints on a GPU, in every layout that it has, whole prompts and chunks: judged by the reference with
// the same rounding.
func TestGPUOracle(t *testing.T) {
	if err := cuda.Available(); err != nil {
		t.Skipf("needs a Hopper GPU: %v", err)
	}
	for _, name := range checkpoints {
		for _, kv := range []string{"bf16", "fp8-656", "fp8-576"} {
			for _, chunk := range []int{0, 61} {
				t.Run(name+"/"+kv, func(t *testing.T) {
					t.Parallel()
					dev, err := kernel.NewRegistry(op.Backends()).Open("cuda", kernel.Options{})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { dev.Close() })
					r := runBeside(t, folder(name), dev, kv, chunk, nil)
					var text strings.Builder
					if err := r.Print(&text); err != nil {
						t.Fatal(err)
					}
					t.Log(text.String())
					for _, c := range r.Cases {
						for _, p := range c.Problems {
							t.Errorf("%s %s in chunks of %d: %s: %s", name, kv, chunk, c.Name, p)
						}
					}
				})
			}
		}
	}
}
