package step_test

import (
	"strings"
	"testing"

	"sparrow/internal/step"
	"sparrow/internal/testkit/gpu"
	"sparrow/plan"
)

// A pass whose input tokens come from the previous pass on the device gives logits bitwise equal to those of a pass
// whose tokens come from the host. This holds in batches with prompts, with requests in another order, and with
// padding.
func TestFedTokensAreThoseOfThePassBefore(t *testing.T) { testFed(t, "cpu") }

func TestGPUFedTokensAreThoseOfThePassBefore(t *testing.T) {
	gpuSettings(t) // skips the test without a GPU
	testFed(t, gpu.Name())
}

func testFed(t *testing.T, kernels string) {
	b := newBench(t, open(t, "deepseek_v32-1", kernels), plan.Policy{KV: "bf16"})
	t.Cleanup(func() { b.run.Close() })
	const sequences, steps = 3, 6
	// Sequences that each step decodes.
	order := [steps][]int{{0, 1, 2}, {2, 0, 1}, {1}, {1, 2, 0}, {0, 1, 2}, {2, 1, 0}}
	run := func(fed bool) (out [][]int32) {
		b.reset()
		works, tokens := make([]step.Work, sequences), make([]int32, sequences)
		for i := range works {
			p := b.prompt(i+1, 30+40*i)
			works[i] = step.Work{Kind: plan.ModeExtend, Tokens: p, Pages: b.pages(len(p) + steps + 1), Logits: 1,
				Best: true}
		}
		before, err := b.run.Start(works)
		if err != nil {
			t.Fatal(err)
		}
		latest := []int{0, 1, 2} // sequences of the previous pass, in the order of their rows
		wait := func() {
			res, err := before.Wait()
			if err != nil {
				t.Fatal(err)
			}
			for r, i := range latest {
				tokens[i], _, _ = res.Best(r)
			}
			out = append(out, append([]int32(nil), tokens...))
		}
		for s, list := range order {
			if !fed {
				wait()
			}
			var next []step.Work
			for _, i := range list {
				w := &works[i]
				w.Cached += len(w.Tokens)
				w.Kind, w.Tokens, w.Sampled = plan.ModeDecode, []int32{tokens[i]}, 0
				for r, x := range latest {
					if x == i && fed {
						w.Tokens, w.Sampled = []int32{0}, r+1
					}
				}
				next = append(next, *w)
			}
			if s%2 == 1 { // the step also has a prompt, whose tokens the host knows
				p := b.prompt(50+s, 20)
				next = append(next, step.Work{Kind: plan.ModeExtend, Tokens: p, Pages: b.pages(len(p))})
			}
			after, err := b.run.Start(next)
			if err != nil {
				t.Fatal(err)
			}
			if fed {
				wait()
			}
			before, latest = after, list
		}
		wait()
		return out
	}
	want, got := run(false), run(true)
	for s := range want {
		for i := range want[s] {
			if got[s][i] != want[s][i] {
				t.Fatalf("pass %d, sequence %d: token %d, want %d", s, i, got[s][i], want[s][i])
			}
		}
	}
}

// A work that takes its token from a row of the previous pass is refused if that pass has no such row, or returned
// whole logits for the row.
func TestFedTokensRefuse(t *testing.T) {
	b := newBench(t, open(t, "deepseek_v32-1", "cpu"), plan.Policy{KV: "bf16"})
	t.Cleanup(func() { b.run.Close() })
	prompt := step.Work{Kind: plan.ModeExtend, Tokens: b.prompt(1, 5), Pages: b.pages(8), Logits: 1}
	for _, c := range []struct {
		name    string
		best    bool
		sampled int
	}{{"whole logits", false, 1}, {"a row that does not exist", true, 2}, {"a negative row", true, -1}} {
		first := prompt
		first.Best = c.best
		b.step(first)
		w := step.Work{Kind: plan.ModeDecode, Tokens: []int32{0}, Cached: 5, Pages: prompt.Pages, Logits: 1, Best: true,
			Sampled: c.sampled}
		if c.sampled == 2 { // the drafting layer also refuses this row
			w.Sampled, w.Drafted = 0, 1
		}
		if _, err := b.run.Run([]step.Work{w}); err == nil || !strings.Contains(err.Error(), "no such row") {
			t.Errorf("%s: error %v", c.name, err)
		}
	}
}
