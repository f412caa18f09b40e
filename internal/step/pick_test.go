package step_test

import (
	"slices"
	"testing"

	"sparrow/internal/step"
	"sparrow/internal/testkit/gpu"
	"sparrow/plan"
)

// The logits of the drafting layer are bitwise equal whether the device or the host finds the row after the accepted
// drafts. The cases are: 0 to 2 drafts of which 0 to 2 are accepted; sequences that are too short to select keys,
// longer sequences, and a sequence whose rows lie on both sides of that length; each of them also in a batch with a
// prompt and in a chain.
func TestPickedRowsAreThoseBehindRightDrafts(t *testing.T) { testPicked(t, "cpu") }

func TestGPUPickedRowsAreThoseBehindRightDrafts(t *testing.T) {
	gpuSettings(t) // skips the test without a GPU
	testPicked(t, gpu.Name())
}

func testPicked(t *testing.T, kernels string) {
	m := loadDrafting(t, "v32-tiny", kernels, nil)
	b := newBench(t, m, plan.Policy{KV: "fp8-656", Speculation: plan.Speculation{Tokens: 3}})
	t.Cleanup(func() { b.run.Close() })
	topk := m.Facts().K
	right := []int{0, 1, 2, 0, 1, 0}  // number of accepted drafts of each sequence
	drafts := []int{2, 2, 2, 1, 1, 0} // number of drafts of each sequence
	lengths := []int{30, topk - 2, topk + 40, topk - 1, 90, topk + 7}
	for _, prompt := range []bool{false, true} {
		want := b.draftBehind(lengths, drafts, right, prompt, false)
		got := b.draftBehind(lengths, drafts, right, prompt, true)
		if len(got) != len(want) || len(got) < 2*len(lengths) {
			t.Fatalf("%d rows of logits, want %d", len(got), len(want))
		}
		for i := range got {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("prompt %v: row %d differs from the row that the host picked", prompt, i)
			}
		}
	}
}

// draftBehind computes prompts, verifies drafts after them, and returns the logits of a draft pass and of a chain after
// this pass.
func (b *bench) draftBehind(lengths, drafts, right []int, prompt, ahead bool) (out [][]float32) {
	b.Helper()
	b.reset()
	works := make([]step.Work, len(lengths))
	for i, n := range lengths {
		works[i] = step.Work{Kind: plan.ModeExtend, Tokens: b.prompt(i+1, n), Pages: b.pages(n + 8), Logits: 1,
			Best: true}
		pending, err := b.run.Start(works[i : i+1])
		if err != nil {
			b.Fatal(err)
		}
		token := b.best(pending, 0)
		// list holds the tokens that the target would choose next; drafts are derived from it.
		list := []int32{token}
		for range drafts[i] {
			w := works[i]
			w.Tokens = append(slices.Clone(w.Tokens), list...)
			if pending, err = b.run.Start([]step.Work{w}); err != nil {
				b.Fatal(err)
			}
			list = append(list, b.best(pending, 0))
		}
		for k := range drafts[i] {
			if k >= right[i] {
				list[1+k] = (list[1+k] + 1) % int32(b.m.Config().Vocab)
			}
		}
		w := &works[i]
		w.Cached, w.Tokens, w.Kind, w.Logits = n, list, plan.ModeVerify, len(list)
		if len(list) == 1 {
			w.Kind = plan.ModeDecode
		}
	}
	if prompt {
		p := b.prompt(40, 50)
		works = append(works, step.Work{Kind: plan.ModeExtend, Tokens: p, Pages: b.pages(60), Logits: 1, Best: true})
		drafts, right = append(slices.Clone(drafts), 0), append(slices.Clone(right), 0)
	}
	pending, err := b.run.Start(works)
	if err != nil {
		b.Fatal(err)
	}
	list, row := make([]step.Draft, len(works)), 0
	for i := range works {
		w := &works[i]
		d := step.Draft{Kind: plan.ModeDraft, Cached: w.Cached, Pages: w.Pages, Logits: true, From: i}
		if w.Kind == plan.ModeExtend {
			d.Kind = plan.ModeExtend
		}
		tokens := slices.Clone(w.Tokens[1:])
		if ahead {
			d.Sampled = row + 1
			tokens = append(tokens, 0)
			for k := len(tokens) - w.Logits; k < len(tokens); k++ {
				tokens[k] = 0
			}
			for _, draft := range w.Tokens[1 : 1+drafts[i]] {
				d.Right = append(d.Right, step.Range{Least: draft, Most: draft})
			}
		} else {
			tokens = append(tokens[:len(tokens)-drafts[i]+right[i]], b.best(pending, row+right[i]))
		}
		d.Tokens = tokens
		list[i] = d
		row += w.Logits
	}
	keep := func(r step.Result) {
		for i := range works {
			out = append(out, slices.Clone(r.Row(i)))
		}
	}
	res, err := b.run.Draft(list, false)
	if err != nil {
		b.Fatal(err)
	}
	keep(res)
	for i := range list {
		list[i] = step.Draft{Kind: plan.ModeDraft, Tokens: []int32{7}, Cached: works[i].Cached + len(works[i].Tokens) -
			drafts[i] + right[i], Pages: works[i].Pages, Logits: true, From: i}
	}
	if res, err = b.run.Draft(list, true); err != nil {
		b.Fatal(err)
	}
	keep(res)
	return out
}

// best returns the best token of a row of a pass.
func (b *bench) best(p step.Pending, row int) int32 {
	b.Helper()
	res, err := p.Wait()
	if err != nil {
		b.Fatal(err)
	}
	token, _, _ := res.Best(row)
	return token
}
