package verify_test

import (
	"testing"

	"sparrow/kernel"
	"sparrow/plan"
)

const glmNext = "glm5_next-1"

// Linear attention beside pooled selection computes what the oracle computed, whole and in chunks around every
// boundary: of a pool, of the grid of 64 positions, and none.
func TestNextExact(t *testing.T) {
	dir := unpacked(t, glmNext)
	for i, k := range kernels() {
		t.Run(k, func(t *testing.T) {
			chunks := []int{0, 1, 3, 64, 127, 128}
			switch {
			case i == 0 && !*long:
				t.Skip("make long runs it")
			case i == 0:
				chunks = []int{0}
			case i > 1:
				chunks = []int{127}
			}
			m := openPath(t, dir, k, kernel.Options{Precise: true})
			for _, c := range chunks {
				r := run(t, dir, m, plan.Policy{KV: "f32"}, c)
				if !r.Exact {
					t.Error("the report does not say that rows were exact")
				}
				for _, c := range r.Cases {
					if c.Selections != 8 || c.GreedyOf != 24 {
						t.Errorf("case %s compared %d selections and %d greedy tokens", c.Name, c.Selections,
							c.GreedyOf)
					}
				}
			}
		})
	}
}
