package verify_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/internal/model/family"
	"sparrow/internal/model/llamacpp"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/verify"
)

const v4 = "deepseek_v4-1"

// DeepSeek-V4 gives the results of the independent implementation, with chunks around every boundary of a group of 4,
// of a group of 128, of the window and of a page.
func TestV4Exact(t *testing.T) {
	for i, k := range kernels() {
		t.Run(k, func(t *testing.T) {
			chunks := []int{0, 129}
			switch {
			case i == 0 && !*long:
				t.Skip("make long runs it")
			case i == 0:
				chunks = []int{0}
			case i == 1 && !plain() && *long:
				// The best CPU tier runs every chunk size; slower tiers run two.
				chunks = []int{0, 1, 3, 4, 5, 127, 128, 129, 256}
			case k == "cpu-go" && !plain() && !*long:
				t.Skip("make long runs it: this tier operation by operation against the reference")
			case i > 1 && !*long:
				chunks = []int{129}
			}
			m := open(t, v4, k, kernel.Options{Precise: true})
			for _, c := range chunks {
				r := run(t, v4, m, plan.Policy{KV: "f32"}, c)
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

// A GGUF file that is written from the checkpoint gives the results of the independent implementation when it is read.
func TestV4FromGGUF(t *testing.T) {
	src, err := family.Open(folder(v4))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	path := filepath.Join(t.TempDir(), "v4.gguf")
	m := &llamacpp.Model{Name: v4, Config: src.Model, Weights: src.Weights}
	if _, err := llamacpp.Write(context.Background(), path, m, llamacpp.MixF32, nil); err != nil {
		t.Fatal(err)
	}
	again := openPath(t, path, "cpu", kernel.Options{Precise: true})
	if r := run(t, shorter(t, v4), again, plan.Policy{KV: "f32"}, 129); !r.Exact {
		t.Error("the report does not say that rows were exact")
	}
}

// 584-byte pages stay within the tolerances of tolerance.go, and every kernel that reads them gives the same numbers.
func TestV4Packed(t *testing.T) {
	m := load(t, v4, "cpu")
	var first *verify.Report
	golden := shorter(t, v4) // TestV4RoundingIsNotTakenForExact runs the longest case, too
	chunks := []int{0, 5, 129}
	if plain() || !*long {
		chunks = chunks[2:]
	}
	for _, p := range []plan.Policy{{KV: "fp8"}, {KV: "v4-584", Prefill: "v4-paged"},
		{Deterministic: true}} {
		for _, chunk := range chunks {
			t.Run(fmt.Sprintf("%s %s chunk %d deterministic %v", p.KV, p.Prefill, chunk, p.Deterministic),
				func(t *testing.T) {
					r := run(t, golden, m, p, chunk)
					if first == nil {
						first = r
					}
					for i, c := range r.Cases {
						if want := first.Cases[i]; c.MaxError != want.MaxError || c.MedianCosine != want.MedianCosine ||
							c.GreedyEqual != want.GreedyEqual {
							t.Errorf("case %s: error %v and cosine %v, other ways of reading the same pages "+
								"gave %v and %v",
								c.Name, c.MaxError, c.MedianCosine, want.MaxError, want.MedianCosine)
						}
					}
				})
		}
	}
	t.Run("with four-bit indexer keys", func(t *testing.T) { run(t, v4, m, plan.Policy{KV: "fp8", FP4Index: true}, 0) })
	t.Run("with exact indexer keys", func(t *testing.T) { run(t, v4, m, plan.Policy{KV: "fp8", ExactIndex: true}, 0) })
}

// The exact comparison must detect the rounding of 584-byte entries.
func TestV4RoundingIsNotTakenForExact(t *testing.T) {
	m := load(t, v4, "cpu")
	r := run(t, v4, m, plan.Policy{KV: "fp8"}, 0)
	for _, c := range r.Cases {
		if strings.Contains(c.Rule, ".go") || !strings.Contains(c.Rule, "above 0.99") {
			t.Errorf("case %s: the rule %q does not say its bounds", c.Name, c.Rule)
		}
		if c.MaxError < 2e-3 {
			t.Errorf("case %s: largest error with 8-bit entries is %g; the comparison cannot distinguish rounding "+
				"from exactness", c.Name, c.MaxError)
		}
	}
	if r.Exact {
		t.Error("the report calls 584-byte entries exact")
	}
}
