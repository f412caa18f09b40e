package sched

import "math"

// load is what a batch computes, as far as its time depends on it. Contexts are sums over rows, in thousands of
// tokens: a row costs the more the more tokens it may see.
type load struct {
	rows, context float64 // of sequences that decode, drafts included
	near, far     float64 // rows of prompts before and behind Limits.Threshold
	seen          float64 // their context
	prompts       bool
	smallest      bool // prompts were cut to the smallest chunk
	apart         bool // sequences that decode are left out
}

// addDecode adds n rows of a sequence that decodes.
func (l *load) addDecode(n, cached int) {
	l.rows += float64(n)
	l.context += context(n, cached)
}

// addPrompt adds n tokens of a prompt.
func (l *load) addPrompt(n, cached, threshold int) {
	near := min(max(threshold-cached, 0), n)
	l.prompts = true
	l.near += float64(near)
	l.far += float64(n - near)
	l.seen += context(n, cached)
}

// context is what n rows behind cached tokens see.
func context(n, cached int) float64 { return float64(n) * (float64(cached) + float64(n)/2) / 1000 }

func (l *load) decodeFeatures() features { return features{1, l.rows, 0, l.context} }
func (l *load) promptFeatures() features { return features{1, l.near, l.far, l.seen} }

// cost predicts the time of a batch in seconds, from batches that were measured. What decoding takes and what prompts
// add are learned apart: thousands of batches without prompts do not make it forget what prompts cost.
type cost struct {
	decode, prompt fit
	measured       int     // batches with prompts
	near, far      float64 // rows of prompts that one of the latest of them had
	most           float64 // rows of a batch without prompts that was measured
	spread         float64 // of the times of batches with prompts around what was predicted
}

// The first guesses, in seconds: of a batch, a row before and behind the threshold, and a thousand tokens that a row
// sees. They are above what small models take. Where a model takes more, the first batches correct them.
func newCost() cost {
	return cost{
		decode: newFit(features{1e-3, 1e-3, 0, 1e-4}, 0.98),
		prompt: newFit(features{1e-3, 2e-3, 2e-3, 2e-4}, 0.9),
		spread: firstSpread,
	}
}

// decoding predicts the time of a batch's decodes alone.
func (c *cost) decoding(l *load) float64 { return c.decode.predict(l.decodeFeatures()) }

// of predicts the time of a batch.
func (c *cost) of(l *load) float64 {
	t := c.decoding(l)
	if l.prompts {
		t += c.prompt.predict(l.promptFeatures())
	}
	return t
}

// knownDecoding is decoding as far as it was measured: what is only guessed is left to the prompts, so that they are
// rather thought too slow than too fast.
func (c *cost) knownDecoding(l *load) float64 {
	if c.most == 0 {
		return 0
	}
	known := *l
	if l.rows > c.most {
		known.rows, known.context = c.most, l.context*c.most/l.rows
	}
	return c.decoding(&known)
}

// outlier bounds what one measurement may say, as a multiple of what was predicted: the machine may have done something
// else. A change that lasts is learned from a few measurements.
const outlier = 3

// The margin follows from how far measured times lie above predicted ones: spread is the mean square of the logarithm
// of their ratio, where it is above 1. A batch in a few hundred lies more than tail of its roots above what was
// predicted, and may take MaxStall and a tenth. So the margin is small on a quiet machine, and large where the time of
// equal batches differs.
const (
	firstSpread             = 0.03
	tail, allowed           = 3, 1.15
	leastMargin, mostMargin = 1.2, 2.5
	spreadKeep              = 0.97 // what the batches before count
)

func (c *cost) margin() float64 {
	return min(max(math.Exp(tail*math.Sqrt(c.spread))/allowed, leastMargin), mostMargin)
}

// widen takes the ratio of a measured to a predicted time. Times above the prediction are half of them, so their
// squares count twice; times far below it were predicted by first guesses.
func (c *cost) widen(ratio float64) {
	late := math.Log(min(max(ratio, 1), outlier))
	c.spread = spreadKeep*c.spread + (1-spreadKeep)*2*late*late
}

// Predictions hold for batches of about as many rows of prompts as were measured: at most beyond times as many. What
// was measured is forgotten by the part fade with every batch.
const beyond, fade = 1.5, 0.1

// trusts reports whether a batch is like those that were measured, or has a small chunk of prompts.
func (c *cost) trusts(l *load) bool {
	return l.near <= max(beyond*c.near, SmallestChunk) && l.far <= max(beyond*c.far, SmallestChunk)
}

// learn takes the measured time of a batch.
func (c *cost) learn(l *load, seconds float64) {
	if seconds <= 0 {
		return
	}
	predicted := c.of(l)
	ratio := seconds / predicted
	seconds = min(seconds, outlier*predicted)
	if !l.prompts {
		c.most = max(c.most, l.rows)
		c.decode.learn(l.decodeFeatures(), seconds, seconds)
		return
	}
	if c.measured++; l.rows > 0 {
		c.widen(ratio)
	}
	if l.rows > 0 && c.decoding(l) > seconds {
		// The decodes alone were thought to take longer than all of it: there was no batch without prompts yet.
		c.decode.learn(l.decodeFeatures(), seconds, seconds)
	}
	c.near, c.far = max(l.near, c.near*(1-fade)), max(l.far, c.far*(1-fade))
	c.prompt.learn(l.promptFeatures(), max(seconds-c.knownDecoding(l), 0), seconds)
}

// features are what a linear model multiplies with its weights: a constant, two kinds of rows, their context.
type features [4]float64

// fit is a linear model whose weights are not negative: the least squares of relative errors, in which older
// measurements count less. A little pull to the weights before keeps those that no measurement is about. Weights are in
// units of the guess they begin with.
type fit struct {
	guess  features
	keep   float64 // what an older measurement counts, relative to the next
	weight features
	a      [len(features{})]features // sums of products of features, in units of the guess
	b      features                  // sums of products of features and times
}

func newFit(guess features, keep float64) fit {
	return fit{guess: guess, keep: keep, weight: features{1, 1, 1, 1}}
}

// pull is what the weights before count, relative to a measurement.
const pull = 1e-3

func (f *fit) predict(x features) (t float64) {
	for i := range x {
		t += f.weight[i] * f.guess[i] * x[i]
	}
	return t
}

// learn takes a measured time; errors are relative to the time scale.
func (f *fit) learn(x features, t, scale float64) {
	for i := range x {
		x[i] *= f.guess[i] / scale
	}
	for i := range x {
		f.b[i] = f.keep*f.b[i] + x[i]*t/scale
		for j := range x {
			f.a[i][j] = f.keep*f.a[i][j] + x[i]*x[j]
		}
	}
	before := f.weight
	const sweeps = 16 // of coordinate descent
	for range sweeps {
		for i := range x {
			rest := f.b[i] + pull*before[i]
			for j := range x {
				if j != i {
					rest -= f.a[i][j] * f.weight[j]
				}
			}
			f.weight[i] = max(rest/(f.a[i][i]+pull), 0)
		}
	}
}
