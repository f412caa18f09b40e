package verify

import (
	"fmt"

	"sparrow/plan"
)

// Tolerances, with their reasons.
const (
	// exactLogit is the maximum error of logits with float32 caches. Another order of sums changes logits of an
	// independent float32 implementation by about 1e-4.
	exactLogit = 2e-3

	// A quantised cache, even bf16, flips some selections and expert choices on random weights, so single positions can
	// have large errors although the typical position has a small one. Therefore medians are checked and single
	// positions are not. Rounding to e4m3 (typically 2.6 % of a value) changes the typical position more than rounding
	// to bf16 (0.17 %): the lowest median that was measured is 0.953.
	bf16Cosine   = 0.99
	fp8Cosine    = 0.93
	quantOverlap = 0.95

	// firstCosine is the minimum cosine of the state after the first layer, which does not depend on an expert choice
	// or a selection.
	firstCosine = 0.99

	// For DeepSeek-V4 with 584-byte entries, the layers before the first scored expert choice have cosines above 0.995.
	// Over 40 samples of the weights, the lowest median of logits is 0.9985 in long cases and 0.9966 in short cases,
	// and single positions are as low as 0.5 (v4 spec, 8).
	v4Cosine      = 0.99
	v4FirstCosine = 0.995
	v4FirstLayers = 2

	// exactDraft is the maximum error in float32 of logits of drafts, of confidences and of logits after rejected
	// drafts. The independent implementations differ by at most 1e-5; the smallest fault that was tried, a missing
	// sink, gives 0.01.
	exactDraft = 1e-4

	// farCosine is the minimum cosine of the typical position if FP8 indexer keys have changed the selections of later
	// layers with random weights. Logits of unrelated positions have a cosine near 0.
	farCosine = 0.7
)

// judge lists the values out of tolerance for layouts of rows and of indexer keys.
func judge(c *Case, main, index plan.Layout) {
	if c.Logits == 0 {
		c.addProblem("the golden file holds no logits of this case, so that nothing is compared")
	}
	switch {
	case main == plan.F32Row2304 || main == plan.V4F32Row2048 || main == plan.F32Row2048:
		c.judgeExact()
	case main == plan.V4Row584:
		c.judgeV4(keyNoise(index))
	case main == plan.V41Row288:
		c.judgeV41(keyNoise(index))
	case c.selective() && index != plan.IndexF32Row512:
		c.judgeSelective()
	case main == plan.BF16Row1152:
		c.judgeMedians(bf16Cosine)
		c.judgeGreedy()
	case main == plan.BF16Row1024: // a flipped expert choice changes all later decoded tokens
		c.judgeMedians(bf16Cosine)
	case main == plan.FP8Row528:
		c.judgeMedians(fp8Cosine)
	default:
		c.judgeMedians(fp8Cosine)
		c.judgeGreedy()
	}
}

func (c *Case) addProblem(format string, args ...any) {
	c.Problems = append(c.Problems, fmt.Sprintf(format, args...))
}

// judgeExact requires the accuracy of float32: everything is equal except for rounding.
func (c *Case) judgeExact() {
	c.checked = maxErrorColumn | setsColumn | argmaxColumn | greedyColumn
	c.Rule = fmt.Sprintf("float32 cache: logits within %.0e, every selection and token equal", exactLogit)
	if !(c.MaxError <= exactLogit) {
		c.addProblem("largest logit error %.2e, want at most %.0e", c.MaxError, exactLogit)
	}
	if c.SetsEqual < c.Selections {
		c.addProblem("%d of %d selections equal, want all", c.SetsEqual, c.Selections)
	}
	if c.ArgmaxEqual < c.ArgmaxOf {
		c.addProblem("%d of %d most likely tokens equal, want all", c.ArgmaxEqual, c.ArgmaxOf)
	}
	if c.GreedyEqual < c.GreedyOf {
		c.addProblem("greedy tokens differ from number %d on, want %d equal", c.GreedyEqual, c.GreedyOf)
	}
}

// judgeBlocks requires of drafts what is required of logits: in float32, equality except for rounding; otherwise
// agreement of the typical row.
func (c *Case) judgeBlocks(main plan.Layout) {
	b := c.Blocks
	if main == plan.V4F32Row2048 {
		for _, x := range []struct {
			what  string
			value float64
		}{{"logits of drafts", b.LogitError}, {"logits of drafts without the Markov head", b.BaseError},
			{"confidences", b.ConfidenceError}, {"logits after given drafts", b.ForcedError}} {
			if !(x.value <= exactDraft) {
				c.addProblem("%s differ by %.2e from the golden ones, want at most %.0e", x.what, x.value, exactDraft)
			}
		}
		if b.DraftsEqual < b.Drafts || b.AcceptedEqual < b.Steps || b.ForcedEqual < b.Forced {
			c.addProblem("%d of %d drafts, tokens of %d of %d verifies and %d of %d acceptance lengths equal, want all",
				b.DraftsEqual, b.Drafts, b.AcceptedEqual, b.Steps, b.ForcedEqual, b.Forced)
		}
		return
	}
	if !(b.MedianCosine > v4Cosine) || !(b.ForcedCosine > v4Cosine) {
		c.addProblem("median cosine of drafts' logits %.4f, of logits after given drafts %.4f, want above %g",
			b.MedianCosine, b.ForcedCosine, v4Cosine)
	}
}

// judgeMedians judges quantised rows whose selections contain every key, or were computed from exact keys.
func (c *Case) judgeMedians(cosine float64) {
	c.checked = cosineColumn | hiddenColumn
	overlapping := ""
	if c.TopK > 0 {
		c.checked |= overlapColumn
		overlapping = fmt.Sprintf(", selections overlapping by more than %.2f", quantOverlap)
	}
	c.Rule = fmt.Sprintf("rounded cache: median cosine of logits above %.2f, of the first layer's state above "+
		"%.2f%s; single positions may differ with random weights", cosine, firstCosine, overlapping)
	if !(c.MedianCosine > cosine) {
		c.addProblem("median cosine of logits %.4f, want above %.2f", c.MedianCosine, cosine)
	}
	if !(first(c.Hidden) > firstCosine) {
		c.addProblem("cosine of hidden states after the first layer %.4f, want above %.2f", first(c.Hidden),
			firstCosine)
	}
	if m := median(c.Overlap); c.TopK > 0 && !(m > quantOverlap) {
		c.addProblem("selections overlap by %.3f, want above %.2f", m, quantOverlap)
	}
}

// judgeGreedy compares greedy tokens of quantised rows.
func (c *Case) judgeGreedy() {
	// A single position may have an error as large as the largest measured one; a choice with a larger margin cannot
	// flip.
	if c.GreedyEqual < c.GreedyOf && c.GreedyMargin > c.MaxError {
		c.addProblem("greedy token %d differs although the oracle's margin %.3f is above the largest error %.3f",
			c.GreedyEqual, c.GreedyMargin, c.MaxError)
	}
}

// v41Cosine is the minimum cosine of the typical position with four-bit entries; the lowest median that was measured
// is 0.937.
const v41Cosine = 0.85

// judgeV41 is for entries of four bits with windows of eight. The first layers read only windows; the first indexer
// reads their output, so that its selection follows from the margins of its scores.
func (c *Case) judgeV41(key float64) {
	before := c.Hidden[:min(v4FirstLayers, len(c.Hidden))]
	floor := selectionFloor(c.Visible, c.TopK, max(noise(before), e4m3Noise), key)
	c.checked = cosineColumn | hiddenColumn | overlapColumn
	c.Rule = fmt.Sprintf("288-byte entries: median cosine of logits above %g, of states of the first %d layers "+
		"above %g; first selections overlap by what the margins of the scores explain, at least %.3f", v41Cosine,
		v4FirstLayers,
		firstCosine, floor)
	if !(c.MedianCosine > v41Cosine) {
		c.addProblem("median cosine of logits %.4f, want above %.2f", c.MedianCosine, v41Cosine)
	}
	for l, v := range before {
		if !(v > firstCosine) {
			c.addProblem("cosine of hidden states after layer %d is %.4f, want above %.3f", l, v, firstCosine)
		}
	}
	if v := first(c.Overlap); !(v >= floor) {
		c.addProblem("selections of the first indexer overlap by %.3f, want at least %.3f", v, floor)
	}
}

// keyNoise returns the relative L2 error that rounding causes in indexer keys and queries.
func keyNoise(index plan.Layout) float64 {
	switch index {
	case plan.IndexF32Row512:
		return 0
	case plan.IndexPage68, plan.V41Index68:
		return e2m1Noise
	}
	return e4m3Noise
}

// judgeV4 is for 584-byte entries and indexer keys that rounding changes by the share key. Compressed entries average
// many tokens, so that few selections and expert choices flip: medians hold for every prompt.
//
// How far selections may differ follows from the margins of the scores (selectionFloor) and from how far the rows
// differ that the scores are computed from. Before the first indexer are layers whose experts the token id chooses:
// their rows differ only by rounding, at least by that of the entries they read. Before later ones, with random weights
// single positions choose other experts; the change of the rows is not larger than the change of the logits, in the
// mean over positions.
func (c *Case) judgeV4(key float64) {
	before := c.Hidden[:min(v4FirstLayers, len(c.Hidden))]
	first := selectionFloor(c.Visible, c.TopK, max(noise(before), e4m3Noise), key)
	later := selectionFloor(c.Visible, c.TopK, max(c.LogitNoise, e4m3Noise), key)
	c.checked = cosineColumn | hiddenColumn | overlapColumn
	c.Rule = fmt.Sprintf(
		"584-byte entries: median cosine of logits above %g, of states of the first %d layers above %g; "+
			"selections overlap by what the margins of the scores explain, at least %.3f in the first indexer, %.3f "+
			"in later ones",
		v4Cosine, v4FirstLayers, v4FirstCosine, first, later)
	if !(c.MedianCosine > v4Cosine) {
		c.addProblem("median cosine of logits %.4f, want above %.2f", c.MedianCosine, v4Cosine)
	}
	for l, v := range before {
		if !(v > v4FirstCosine) {
			c.addProblem("cosine of hidden states after layer %d is %.4f, want above %.3f", l, v, v4FirstCosine)
		}
	}
	floor := first
	for call, v := range c.Overlap {
		if !(v >= floor) {
			c.addProblem("selections of indexer call %d overlap by %.3f, want at least %.3f", call, v, floor)
		}
		floor = later
	}
	if c.GreedyEqual < c.GreedyOf && c.GreedyMargin > c.MaxError {
		c.addProblem("greedy token %d differs although the oracle's margin %.3f is above the largest error %.3f",
			c.GreedyEqual, c.GreedyMargin, c.MaxError)
	}
}

// judgeSelective judges FP8 indexer keys with prompts longer than a selection. The oracle scores with unquantised
// keys, so a few selected keys differ in every row of every layer, and with random weights later layers then give
// different results; with exact keys they do not. Results before the first difference must agree. Later layers are
// tested in two other ways: with trained weights, whose results change little if a few keys differ, and by comparison
// with other kernels that read the same bytes.
func (c *Case) judgeSelective() {
	c.checked = cosineColumn | overlapColumn
	c.Rule = fmt.Sprintf("8-bit indexer keys, prompt longer than a selection: first selections overlapping by more "+
		"than %.2f, median cosine of logits above %.2f; results after a different key are not checked on random "+
		"weights (--exact-index keeps the keys exact)",
		quantOverlap, farCosine)
	if !(first(c.Overlap) > quantOverlap) {
		c.addProblem("first selections overlap by %.3f, want above %.2f", first(c.Overlap), quantOverlap)
	}
	if !(c.MedianCosine > farCosine) {
		c.addProblem("median cosine of logits %.4f, want above %.2f", c.MedianCosine, farCosine)
	}
}

// first returns the first value, or 0 if there is none.
func first(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return v[0]
}
