package verify

import (
	"math"
	"slices"
	"testing"

	"sparrow/plan"
)

// Invariants of this file: every value that a rule names decides the verdict. Each value is tested just within and just
// beyond its tolerance.

// passing returns a case that satisfies every rule.
func passing() Case {
	return Case{Logits: 9, MaxError: 1e-3, MedianError: 1e-4, MedianCosine: 0.999, Hidden: []float64{0.999, 0.999, 0.5},
		Overlap: []float64{1, 1}, Visible: 64, TopK: 64, Selections: 10, SetsEqual: 10, ArgmaxEqual: 10, ArgmaxOf: 10,
		GreedyEqual: 10, GreedyOf: 10, GreedyMargin: 1}
}

func TestEveryValueOfARuleIsJudged(t *testing.T) {
	type change struct {
		what string
		of   func(c *Case)
		bad  bool
	}
	cosine := func(v float64, bad bool) change {
		return change{"median cosine", func(c *Case) { c.MedianCosine = v }, bad}
	}
	hidden := func(layer int, v float64, bad bool) change {
		return change{"hidden state", func(c *Case) { c.Hidden[layer] = v }, bad}
	}
	overlap := func(call int, v float64, bad bool) change {
		return change{"overlap", func(c *Case) { c.Overlap[call] = v }, bad}
	}
	greedy := func(equal int, margin float64, bad bool) change {
		return change{"greedy tokens", func(c *Case) { c.GreedyEqual, c.GreedyMargin = equal, margin }, bad}
	}
	nan := math.NaN()
	for _, r := range []struct {
		name        string
		main, index plan.Layout
		columns     column // columns that the rule depends on
		changes     []change
	}{
		{"float32", plan.F32Row2304, plan.IndexF32Row512,
			maxErrorColumn | setsColumn | argmaxColumn | greedyColumn, []change{
				{"largest error", func(c *Case) { c.MaxError = exactLogit }, false},
				{"largest error", func(c *Case) { c.MaxError = 1.01 * exactLogit }, true},
				{"largest error", func(c *Case) { c.MaxError = nan }, true},
				{"selections", func(c *Case) { c.SetsEqual = 9 }, true},
				{"most likely tokens", func(c *Case) { c.ArgmaxEqual = 9 }, true},
				greedy(9, 0, true), cosine(0, false)}},
		{"bf16", plan.BF16Row1152, plan.IndexF32Row512,
			cosineColumn | hiddenColumn | overlapColumn, []change{cosine(bf16Cosine, true), cosine(0.9901, false),
				cosine(nan, true), hidden(0, firstCosine, true), hidden(0, 0.9901, false), hidden(1, 0, false),
				{"no hidden states", func(c *Case) { c.Hidden = nil }, true},
				{"overlaps", func(c *Case) { c.Overlap = []float64{0.95, 0.95} }, true},
				{"overlaps", func(c *Case) { c.Overlap = []float64{0.951, 0.951} }, false},
				{"no overlaps", func(c *Case) { c.Overlap = nil }, true},
				{"a model without an indexer", func(c *Case) { c.Overlap, c.TopK = nil, 0 }, false},
				greedy(9, 1.1e-3, true), greedy(9, 1e-3, false)}},
		{"fp8", plan.FP8Row656, plan.IndexF32Row512,
			cosineColumn | hiddenColumn | overlapColumn, []change{cosine(fp8Cosine, true), cosine(0.9301, false),
				greedy(9, 1.1e-3, true)}},
		{"584 bytes", plan.V4Row584, plan.IndexF32Row512,
			cosineColumn | hiddenColumn | overlapColumn, []change{cosine(v4Cosine, true), cosine(0.9901, false),
				hidden(0, v4FirstCosine, true), hidden(1, v4FirstCosine, true), hidden(1, 0.9951, false),
				hidden(2, 0, false), overlap(0, 0.999, true), overlap(1, 0.999, true), greedy(9, 1.1e-3, true),
				greedy(9, 1e-3, false)}},
		{"288 bytes", plan.V41Row288, plan.IndexF32Row512,
			cosineColumn | hiddenColumn | overlapColumn, []change{cosine(v41Cosine, true), cosine(0.8501, false),
				hidden(1, firstCosine, true), hidden(1, 0.9901, false), overlap(0, 0.999, true), overlap(1, 0, false)}},
		{"selective", plan.FP8Row656, plan.IndexPage132,
			cosineColumn | overlapColumn, []change{
				cosine(farCosine, true), cosine(0.7001, false), overlap(0, quantOverlap, true),
				overlap(0, 0.9501, false), overlap(1, 0, false)}},
	} {
		r.changes = append(r.changes, change{"nothing", func(*Case) {}, false},
			change{"no logits", func(c *Case) { c.Logits = 0 }, true})
		for _, x := range r.changes {
			c := passing()
			if r.name == "selective" {
				c.Visible = 65
			}
			x.of(&c)
			if judge(&c, r.main, r.index); len(c.Problems) != 0 != x.bad || len(c.Problems) > 1 {
				t.Errorf("%s, another %s: %v; want a problem: %v", r.name, x.what, c.Problems, x.bad)
			}
			want := r.columns
			if c.TopK == 0 {
				want &^= overlapColumn
			}
			if c.checked != want {
				t.Errorf("%s, another %s: the rule depends on columns %b, want %b", r.name, x.what, c.checked, want)
			}
		}
	}
}

// The noise of vectors is the size of their difference: it is 0 for equal vectors and the square root of 2 for
// unrelated vectors.
func TestNoise(t *testing.T) {
	for _, c := range []struct {
		cosines []float64
		want    float64
	}{{nil, 0}, {[]float64{1, 1}, 0}, {[]float64{0}, math.Sqrt2}, {[]float64{0.5, 0.5}, 1}, {[]float64{1, 0}, 1},
		{[]float64{1.0000001}, 0}, {[]float64{-1}, 2}} {
		if got := noise(c.cosines); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("cosines %v: %v, want %v", c.cosines, got, c.want)
		}
	}
}

// A choice is explained if its distance from the cut is at most twice the largest difference of scores: the scores of
// the key and of the cut may both differ.
func TestExplainedChoices(t *testing.T) {
	var m margins
	for i, c := range []struct {
		distance, most float64
		explained      bool
	}{{0, 0, true}, {1, 0.5, true}, {1.001, 0.5, false}, {math.NaN(), 1, false}, {math.Inf(1), 1, false}} {
		before := m
		m.add(c.distance, c.most, 4)
		if m.Differ != i+1 || (m.Unexplained == before.Unexplained) != c.explained {
			t.Errorf("distance %v, scores differ by %v: %+v, before %+v", c.distance, c.most, m, before)
		}
		if i == 2 && m.Worst != 1.001/4 {
			t.Errorf("the worst is %v of the scale", m.Worst)
		}
	}
}

// Every value of drafts is judged: exactly for float32 rows, by the typical row for packed rows.
func TestEveryValueOfDraftsIsJudged(t *testing.T) {
	exact, packed := plan.V4F32Row2048, plan.V4Row584
	for _, x := range []struct {
		what string
		rows plan.Layout
		of   func(b *Blocks)
		bad  bool
	}{
		{"nothing", exact, func(*Blocks) {}, false}, {"nothing", packed, func(*Blocks) {}, false},
		{"logits", exact, func(b *Blocks) { b.LogitError = exactDraft }, false},
		{"logits", exact, func(b *Blocks) { b.LogitError = 1.01 * exactDraft }, true},
		{"logits without the Markov head", exact, func(b *Blocks) { b.BaseError = 1.01 * exactDraft }, true},
		{"confidences", exact, func(b *Blocks) { b.ConfidenceError = math.NaN() }, true},
		{"logits after given drafts", exact, func(b *Blocks) { b.ForcedError = 1.01 * exactDraft }, true},
		{"drafts", exact, func(b *Blocks) { b.DraftsEqual-- }, true},
		{"tokens of verifies", exact, func(b *Blocks) { b.AcceptedEqual-- }, true},
		{"acceptance lengths", exact, func(b *Blocks) { b.ForcedEqual-- }, true},
		{"typical draft", exact, func(b *Blocks) { b.MedianCosine, b.ForcedCosine = 0, 0 }, false},
		{"typical draft", packed, func(b *Blocks) { b.MedianCosine = v4Cosine }, true},
		{"typical row after given drafts", packed, func(b *Blocks) { b.ForcedCosine = v4Cosine }, true},
		{"single drafts", packed, func(b *Blocks) { b.LogitError, b.DraftsEqual = 1, 0 }, false},
	} {
		b := Blocks{Drafts: 9, DraftsEqual: 9, Steps: 5, AcceptedEqual: 5, Forced: 3, ForcedEqual: 3,
			MedianCosine: 0.999, ForcedCosine: 0.999}
		x.of(&b)
		c := Case{Blocks: &b}
		if c.judgeBlocks(x.rows); len(c.Problems) != 0 != x.bad {
			t.Errorf("%v, another %s: %v; want a problem: %v", x.rows, x.what, c.Problems, x.bad)
		}
	}
}

// Selected pools stand for their tokens, and a row always attends to the tokens after the last complete pool. Negative
// numbers select nothing.
func TestTokensOfPools(t *testing.T) {
	for _, c := range []struct {
		pool, position int
		picked, want   []int32
	}{
		{4, 13, []int32{2, -1, 0}, []int32{8, 9, 10, 11, 0, 1, 2, 3, 12, 13}},
		{4, 11, []int32{1}, []int32{4, 5, 6, 7}}, {4, 12, nil, []int32{12}}, {4, 2, []int32{-1}, []int32{0, 1, 2}},
		{0, 9, []int32{7, 3}, []int32{7, 3}},
	} {
		r := recorded{pool: c.pool}
		if got := r.tokens(c.picked, c.position); !slices.Equal(got, c.want) {
			t.Errorf("pools of %d, position %d, selection %v: tokens %v, want %v", c.pool, c.position, c.picked, got,
				c.want)
		}
	}
}
