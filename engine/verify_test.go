package engine

import (
	"fmt"
	"slices"
	"testing"

	"sparrow/internal/spec"
	"sparrow/internal/step"
	"sparrow/internal/testmodel"
)

// Invariants of this file: each draft is proposed at its own position with the random number of that position. No draft
// is made beyond the last token that a request may have. All drafts are counted, and the pages of rejected drafts are
// released.

// targetLogits returns the rows of logits of a run without drafts, each [vocabulary], by output position.
func targetLogits(t *testing.T, dir string, r Request) (rows [][]float32, answer []int32) {
	t.Helper()
	e := start(t, dir, Config{Draft: spec.Off()}, after(func(works []step.Work, res step.Result) {
		if works[0].Logits > 0 {
			rows = append(rows, slices.Clone(res.Row(0)))
		}
	}))
	return rows, generate(t, e, r).Choices[0].Tokens
}

// drafting returns a hook that replaces the logits of the drafting layer.
func drafting(rewrite func(w *step.Draft, row []float32)) func(*Engine) {
	return func(e *Engine) { e.loop.passes.runner = &guesser{runner: e.loop.passes.runner, rewrite: rewrite} }
}

// A drafter that returns the target's own logits is always accepted: it samples with the random number of the draft's
// own position, and each chained row is at the position of its token. Therefore every count is known: each verification
// gives its drafts and one more token, and the last verifications have only as many drafts as the request can still
// use.
func TestADrafterThatKnowsTheTargetIsAlwaysAccepted(t *testing.T) {
	notUnderRace(t)
	dir := testmodel.V32Draft(t)
	const prompt = 10
	for _, c := range []struct{ drafts, tokens, drafted int }{
		{3, 17, 4 * 3},     // 1 + 4*(3+1)
		{3, 16, 3*3 + 2},   // the last verification can use only two drafts
		{3, 14, 3 * 3},     // 1 + 3*(3+1), then one token without drafts
		{1, 2, 0},          // after the second of two tokens no draft can be used
		{7, 80, 9*7 + 6},   // 1 + 9*8 = 73, then 6 + 1; the answer crosses the end of a page of 64 tokens
		{1, 21, 10},        // 1 + 10*2; chains have one draft, so no row is chained
		{2, 1, 0},          // the answer has only one token after the prompt, so no draft can be used
		{5, 30, 4*5 + 4},   // 1 + 4*6, then 4 + 1
		{4, 151, 30 * 4},   // 1 + 30*5
		{6, 3, 1},          // one draft fits before the last token
		{7, 9, 7},          // 1 + 8
		{7, 8, 6},          // 1 + 7
		{2, 120, 39*2 + 1}, // 1 + 39*3, then 1 + 1
	} {
		for _, temperature := range []float64{0, 1} {
			r := Request{Prompt: tokens(1, prompt), Sampling: seeded(5), MaxTokens: c.tokens, IgnoreEOS: true}
			r.Sampling.Temperature = temperature
			rows, want := targetLogits(t, dir, r)
			e := start(t, dir, Config{Draft: drafts(t, c.drafts)}, checked(t),
				func(e *Engine) { e.cfg.EOS = nil }, // a draft that ends the answer would end its chain
				drafting(func(w *step.Draft, row []float32) {
					// The row has position Cached+len(Tokens)-1. It is computed from the token after that position and
					// proposes the next token.
					copy(row, rows[w.Cached+len(w.Tokens)+1-prompt])
				}))
			what := fmt.Sprintf("%d tokens in drafts of %d at temperature %v", c.tokens, c.drafts, temperature)
			out := generate(t, e, r)
			if !slices.Equal(out.Choices[0].Tokens, want) {
				t.Errorf("%s: tokens %v, without drafts %v", what, out.Choices[0].Tokens, want)
			}
			if u := out.Usage; u.DraftedTokens != c.drafted || u.AcceptedTokens != c.drafted ||
				u.CompletionTokens != c.tokens {
				t.Errorf("%s: usage %+v, want %d drafted and accepted", what, u, c.drafted)
			}
			if st := e.Stats(); st.Drafted != int64(c.drafted) || st.Accepted != int64(c.drafted) ||
				st.VerifiedTokens != int64(c.drafted)+st.Verified {
				t.Errorf("%s: %d drafted, %d accepted, %d output tokens of %d verified items", what, st.Drafted,
					st.Accepted,
					st.VerifiedTokens, st.Verified)
			}
		}
	}
}

// Rows of a chain directly follow the sequence's own rows, and the token of each row is the previous draft.
func TestWhereChainedRowsLie(t *testing.T) {
	type row struct{ cached, tokens int }
	var passes []row
	wrong := int32(0) // token that the target never chooses
	e := start(t, testmodel.V32Draft(t), Config{Draft: drafts(t, 3)}, func(e *Engine) {
		e.loop.passes.runner = &guesser{runner: e.loop.passes.runner, rewrite: func(w *step.Draft, row []float32) {
			passes = append(passes, struct{ cached, tokens int }{w.Cached, len(w.Tokens)})
			row[wrong] = 1000
		}}
	})
	r := Request{Prompt: tokens(1, 10), Sampling: greedy(), MaxTokens: 3, IgnoreEOS: true}
	r.Sampling.LogitBias = map[int32]float64{wrong: -100}
	// The request's bias also applies to proposals; the logits of this drafter outweigh the bias, those of the target
	// do not.
	out := generate(t, e, r)
	// After the prompt there is a draft pass over its ten rows and no chain, because only one draft can be used before
	// the third token; after the second token no draft can be used.
	if want := []row{{0, 10}}; !slices.Equal(passes, want) || out.Usage.DraftedTokens != 1 ||
		out.Usage.AcceptedTokens != 0 {
		t.Errorf("rows with logits %v, usage %+v; want %v and one rejected draft", passes, out.Usage, want)
	}
	passes = nil
	r.MaxTokens = 6
	generate(t, e, r)
	want := []row{
		{0, 10}, {10, 1}, {11, 1}, // three drafts after the prompt: rows 0 to 9, then 10 and 11
		{10, 1}, {11, 1}, {12, 1}, // all drafts were wrong: row 10 again, now with the target's token
		{11, 1}, {12, 1}, // two drafts before the sixth token
		{12, 1}, // one draft before the sixth token
	}
	if !slices.Equal(passes, want) {
		t.Errorf("rows with logits %v; want %v", passes, want)
	}
}

// Pages that only rejected drafts used are released at once. In this test a chain of drafts extends into the second
// page, while the sequence fills the first.
func TestPagesOfRejectedDraftsGoBack(t *testing.T) {
	const pageTokens = 64
	wrong := int32(0)
	held := map[int]int{} // number of pages by number of generated tokens
	e := start(t, testmodel.V32Draft(t), Config{Draft: drafts(t, 7)},
		drafting(func(_ *step.Draft, row []float32) { row[wrong] = 1000 }),
		func(e *Engine) {
			e.cfg.Observe = func(bool) {
				for _, q := range e.loop.sched.All() {
					held[q.Owner.(*choice).limits.made] = len(q.Pages())
				}
			}
		})
	if e.info.PageTokens != pageTokens {
		t.Fatalf("a page has %d tokens, want 64", e.info.PageTokens)
	}
	r := Request{Prompt: tokens(1, pageTokens-2), Sampling: greedy(), MaxTokens: 4, IgnoreEOS: true}
	r.Sampling.LogitBias = map[int32]float64{wrong: -100}
	if u := generate(t, e, r).Usage; u.DraftedTokens != 3 || u.AcceptedTokens != 0 {
		t.Fatalf("usage %+v; want chains of two drafts and of one draft, all rejected", u)
	}
	// Two drafts after the first token reach row 64, and one draft after the second token also reaches row 64; after
	// the third no draft can be used.
	if held[1] != 2 || held[2] != 2 || held[3] != 1 {
		t.Errorf("pages held after each token: %v; want 2, 2, 1", held)
	}
}
