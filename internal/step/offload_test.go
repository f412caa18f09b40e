package step_test

import (
	"fmt"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/step"
	"sparrow/internal/testkit/placed"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/plan"
)

// openPlaced opens an oracle checkpoint with experts in two memories.
func openPlaced(t *testing.T, checkpoint string, rule placed.Rule) model.Model {
	t.Helper()
	src, err := family.Open("../../testdata/oracle/" + checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close(); src.Close() })
	return placed.Load(t, src, dev, rule)
}

// With experts in two memories the logits of every row are bitwise equal to those on one device. This holds for whole
// prompts and chunks of any size, in batches, and mixed with decodes and verified drafts.
func TestOffloadedEqualsOneDevice(t *testing.T) {
	for _, c := range []struct {
		checkpoint, name string
		rule             placed.Rule
		chunks           []int
	}{
		{"deepseek_v32-fp8-1", "half", placed.Half, []int{1, 3, 4, 5, 127, 128, 129}},
		{"deepseek_v32-fp8-1", "all", placed.All, []int{5, 129}},
		{"glm_moe_dsa-1", "half", placed.Half, []int{4, 127}},
		{"glm_moe_dsa-1", "all", placed.All, []int{3, 128}},
		{"deepseek_v32-1", "mixed", placed.Mixed, []int{5, 129}},
	} {
		t.Run(c.checkpoint+"/"+c.name, func(t *testing.T) {
			if !*long {
				c.chunks = c.chunks[len(c.chunks)-2:]
			}
			policy := plan.Policy{KV: "fp8-656"}
			one := newBench(t, open(t, c.checkpoint, "cpu"), policy)
			lengths := []int{90, 128, 129, 200}
			var want [][][]float32
			for i, n := range lengths {
				want = append(want, one.whole(one.prompt(i, n)))
			}
			b := newBench(t, openPlaced(t, c.checkpoint, c.rule), policy)
			b.batched(lengths, want)
			b.mixed(lengths, want)
			for _, chunk := range c.chunks {
				b.reset()
				n := lengths[3]
				tokens, pages := b.prompt(3, n), b.pages(n)
				var got [][]float32
				for at := 0; at < n; at += chunk {
					part := tokens[at:min(at+chunk, n)]
					got = append(got, b.step(step.Work{Kind: plan.ModeExtend, Tokens: part, Cached: at, Pages: pages,
						Logits: len(part)})...)
				}
				b.sameBits(fmt.Sprintf("chunks of %d", chunk), got, want[3])
			}
		})
	}
}
