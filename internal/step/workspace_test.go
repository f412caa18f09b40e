package step_test

import (
	"slices"
	"testing"

	"sparrow/internal/step"
	"sparrow/plan"
)

// Passes in another workspace, of the target and of the drafting layer, run before every operation of a pass. The
// results of the interrupted pass, of the drafts after it, and of these passes are bitwise equal to the results of
// passes run alone.
func TestPassesOfAnotherWorkspaceRunBetweenOperations(t *testing.T) {
	m := loadDrafting(t, "v32-tiny", "cpu", nil)
	policy := plan.Policy{KV: "bf16", Speculation: plan.Speculation{Tokens: 2}}
	compute := func(divided bool) (target, draft [][]float32, between int) {
		b := newBench(t, m, policy)
		defer b.run.Close()
		inner, err := step.New(m, b.cfg, step.Limits{Rows: 1, Requests: 1, Context: 512, Decodes: true})
		if err != nil {
			t.Fatal(err)
		}
		defer inner.Close()
		long, short := b.prompt(1, 300), b.prompt(2, 200)
		pages, own := b.pages(300), b.pages(200)
		b.step(step.Work{Kind: plan.ModeExtend, Tokens: short[:199], Pages: own})
		other := func() ([]float32, []float32) {
			res, err := inner.Run([]step.Work{{Kind: plan.ModeDecode, Tokens: short[199:], Cached: 199, Pages: own,
				Logits: 1}})
			if err != nil {
				t.Fatal(err)
			}
			row := slices.Clone(res.Row(0))
			res, err = inner.Draft([]step.Draft{{Kind: plan.ModeDraft, Tokens: []int32{7}, Cached: 199, Pages: own,
				Logits: true}}, false)
			if err != nil {
				t.Fatal(err)
			}
			return row, slices.Clone(res.Row(0))
		}
		alone, guess := other()
		pass, err := b.run.Begin([]step.Work{{Kind: plan.ModeExtend, Tokens: long[:299], Pages: pages, Logits: 299}})
		for divided && err == nil {
			left := 0
			if left, err = pass.Left(); err != nil || left == 0 {
				break
			}
			row, next := other()
			b.sameBits("between", [][]float32{row, next}, [][]float32{alone, guess})
			between++
			err = pass.Run()
		}
		if err != nil {
			t.Fatal(err)
		}
		pending, err := pass.End()
		if err != nil {
			t.Fatal(err)
		}
		res, err := pending.Wait()
		if err != nil {
			t.Fatal(err)
		}
		for i := range 299 {
			target = append(target, slices.Clone(res.Row(i)))
		}
		res, err = b.run.Draft([]step.Draft{{Kind: plan.ModeExtend, Tokens: long[1:], Pages: pages, Logits: true}},
			false)
		if err != nil {
			t.Fatal(err)
		}
		return target, [][]float32{slices.Clone(res.Row(0))}, between
	}
	target, draft, _ := compute(false)
	gotTarget, gotDraft, between := compute(true)
	b := &bench{T: t}
	b.sameBits("the pass", gotTarget, target)
	b.sameBits("its draft", gotDraft, draft)
	if between < 20 {
		t.Errorf("%d passes ran between operations", between)
	}
}
