package v41_test

import (
	"fmt"
	"slices"
	"testing"

	"sparrow/internal/model/v41"
	"sparrow/internal/step"
	"sparrow/internal/testkit/steps"
	"sparrow/internal/testmodel"
	"sparrow/plan"
)

// drafting is a policy that verifies five drafts.
var drafting = plan.Policy{KV: "fp8", Speculation: plan.Speculation{Tokens: 6}}

// blocks runs a draft pass and returns, for every draft of every work, the logits, then the token and the confidence.
func blocks(b *steps.Bench, works ...step.Draft) (out [][]float32) {
	b.Helper()
	res, err := b.Runner.Draft(works, false)
	if err != nil {
		b.Fatal(err)
	}
	for i := range works {
		for place := range b.Config.Model.Block {
			row, sure := res.Drafted(i, place)
			token, _, _ := res.Best(row)
			out = append(out, append(slices.Clone(res.Row(row)), float32(token), sure))
		}
	}
	return out
}

// drafted computes prompts of a few lengths, drafts a block after each and verifies six tokens. It returns the works of
// the blocks that follow.
func drafted(b *steps.Bench) (works []step.Draft) {
	b.Helper()
	behind := func(s *steps.Sequence, n int) step.Draft {
		return step.Draft{Kind: plan.ModeDraft, Tokens: s.Tokens[n : n+1], Cached: n - 1, Pages: s.Pages,
			State: s.State, Logits: true}
	}
	for i, n := range []int{1, 5, 130, 300} {
		s := b.Sequence(i+11, n+12)
		b.Chunks(&steps.Sequence{Tokens: s.Tokens[:n], Pages: s.Pages, State: s.State}, 131)
		blocks(b, behind(s, n))
		b.Step(s.Work(plan.ModeVerify, 6))
		works = append(works, behind(s, n+6))
	}
	blocks(b, works...)
	return works
}

// Blocks have the same bits alone and in a batch with others, and do not depend on how the prompt was divided into
// chunks.
func TestBlocksAreTheSameInCompany(t *testing.T) {
	b := steps.New(t, steps.Open[*v41.Model](t, testmodel.V41Spark(t), "cpu"), drafting)
	works := drafted(b)
	var alone [][]float32
	for _, w := range works {
		alone = append(alone, blocks(b, w)...)
	}
	b.SameBits("beside others", blocks(b, works...), alone)
	for _, chunk := range []int{3, 64} {
		s := b.Sequence(14, 307)
		b.Chunks(&steps.Sequence{Tokens: s.Tokens[:306], Pages: s.Pages, State: s.State}, chunk)
		w := works[3]
		w.Pages, w.State, w.Tokens = s.Pages, s.State, s.Tokens[306:307]
		b.SameBits(fmt.Sprintf("after chunks of %d", chunk), blocks(b, w), alone[len(alone)-b.Config.Model.Block:])
	}
}

// The CPU kernels draft what the reference drafts, within rounding.
func TestBlocksAgreeWithTheReference(t *testing.T) {
	p := drafting
	p.KV = "f32"
	var out [2][][]float32
	for i, device := range []string{"cpu", "ref"} {
		b := steps.New(t, steps.Open[*v41.Model](t, testmodel.V41Spark(t), device), p)
		s := b.Sequence(1, 141)
		b.Chunks(&steps.Sequence{Tokens: s.Tokens[:140], Pages: s.Pages, State: s.State}, 0)
		out[i] = blocks(b, step.Draft{Kind: plan.ModeDraft, Tokens: s.Tokens[140:], Cached: 139, Pages: s.Pages,
			State: s.State, Logits: true})
	}
	if len(out[0]) != 5 {
		t.Fatalf("%d drafts, want 5", len(out[0]))
	}
	for r := range out[1][:1] { // later rows depend on a drafted token, which may differ
		var gap, size float64
		for i, v := range out[1][r] {
			d := float64(v) - float64(out[0][r][i])
			gap, size = gap+d*d, size+float64(v)*float64(v)
		}
		if !(gap <= 1e-4*size) {
			t.Errorf("row %d is %g away from the reference's, which has the square %g", r, gap, size)
		}
	}
}

// A block of the drafting stages attends to one token more than a row does: the token before its first. Enough window
// pages are kept for both.
func TestTheWindowOfDraftingStages(t *testing.T) {
	for dir, more := range map[string]int{testmodel.V41(t): 0, testmodel.V41Spark(t): 1} {
		m := steps.Open[*v41.Model](t, dir, "cpu")
		if rows := m.Facts().Window; m.Window() != rows+more || rows == 0 {
			t.Errorf("%s: a window of %d tokens, rows see %d", dir, m.Window(), rows)
		}
	}
}
