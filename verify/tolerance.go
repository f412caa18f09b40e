package verify

import "fmt"

// Tolerances, with their reasons.
const (
	// exactLogit bounds logits of float32 caches. An independent float32 implementation differs by about 1e-4 through summation order.
	exactLogit = 2e-3

	// A quantised cache, even bf16, flips some selections and expert choices on random weights, so single positions can be far off while
	// the typical one is close: medians are judged, and single positions are not.
	quantCosine  = 0.99
	quantOverlap = 0.95

	// marginFactor is how far above the typical logit error the oracle's margin must lie before a differing greedy token counts as wrong.
	marginFactor = 4
)

// judge lists what is out of tolerance.
func judge(c *Case, exact bool) {
	complain := func(format string, args ...any) { c.Problems = append(c.Problems, fmt.Sprintf(format, args...)) }
	if exact {
		if !(c.MaxError <= exactLogit) {
			complain("largest logit error %.2e, want at most %.0e", c.MaxError, exactLogit)
		}
		if c.SetsEqual < c.Selections {
			complain("%d of %d selections equal, want all", c.SetsEqual, c.Selections)
		}
		if c.ArgmaxEqual < c.ArgmaxOf {
			complain("%d of %d most likely tokens equal, want all", c.ArgmaxEqual, c.ArgmaxOf)
		}
		if c.GreedyEqual < c.GreedyOf {
			complain("greedy tokens differ from number %d on, want %d equal", c.GreedyEqual, c.GreedyOf)
		}
		return
	}
	if !(c.MedianCosine > quantCosine) {
		complain("median cosine of logits %.4f, want above %.2f", c.MedianCosine, quantCosine)
	}
	if m := median(c.Hidden); !(m > quantCosine) {
		complain("median cosine of hidden states %.4f, want above %.2f", m, quantCosine)
	}
	if !(c.Overlap > quantOverlap) {
		complain("selections overlap by %.3f, want above %.2f", c.Overlap, quantOverlap)
	}
	if c.GreedyEqual < c.GreedyOf && c.GreedyMargin > marginFactor*c.MedianError {
		complain("greedy token %d differs although the oracle's margin %.3f is well above the typical error %.3f", c.GreedyEqual, c.GreedyMargin, c.MedianError)
	}
}
