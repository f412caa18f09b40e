package sched

// load is what a batch computes, as far as its time depends on it. Contexts are sums over rows, in thousands of
// tokens: a row costs the more the more tokens it may see.
type load struct {
	rows, context       float64 // of sequences that decode, drafts included
	promptRows, seen    float64 // of prompts
	prompts, promptsMin bool    // there are prompts; they were cut to the smallest chunk
}

// addRows adds n rows behind cached tokens.
func addRows(rows, context *float64, n, cached int) {
	*rows += float64(n)
	*context += float64(n) * (float64(cached) + float64(n)/2) / 1000
}

// cost predicts the time of a batch in seconds, from batches that were measured. What decoding takes and what prompts
// add are learned apart: thousands of batches without prompts do not make it forget what prompts cost.
type cost struct {
	decode, prompt fit
	measured       int     // batches with prompts
	most           float64 // rows of a batch without prompts that was measured
	margin         float64 // by how much batches with prompts took longer than predicted, all but few of them
}

// The first guesses, in seconds: of a batch, a row, and a thousand tokens that a row sees. They are above what small
// models take. Where a model takes more, the first batches correct them.
func newCost() cost {
	return cost{
		decode: fit{guess: features{1e-3, 1e-3, 1e-4}, keep: 0.98},
		prompt: fit{guess: features{1e-3, 2e-3, 2e-4}, keep: 0.8},
		margin: firstMargin,
	}
}

// decoding predicts the time of a batch's decodes alone.
func (c *cost) decoding(l *load) float64 { return c.decode.predict(features{1, l.rows, l.context}) }

// of predicts the time of a batch.
func (c *cost) of(l *load) float64 {
	t := c.decoding(l)
	if l.prompts {
		t += c.prompt.predict(features{1, l.promptRows, l.seen})
	}
	return t
}

// knownDecoding is decoding as far as it was measured: what is only guessed is left to the prompts, so that they are
// rather thought too slow than too fast.
func (c *cost) knownDecoding(l *load) float64 {
	if !c.decode.known {
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

// The margin follows the ratio of measured to predicted times that the share late of batches exceeds, by steps of
// marginStep: it is small on a quiet machine, and large where other work interferes.
const (
	firstMargin, leastMargin, mostMargin = 1.2, 1.1, 2

	late       = 0.02
	marginStep = 0.05
)

func (c *cost) widen(ratio float64) {
	if ratio > c.margin {
		c.margin += marginStep * (1 - late)
	} else {
		c.margin -= marginStep * late
	}
	c.margin = min(max(c.margin, leastMargin), mostMargin)
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
		c.decode.learn(features{1, l.rows, l.context}, seconds, seconds)
		return
	}
	if c.measured++; l.rows > 0 {
		c.widen(ratio)
	}
	c.prompt.learn(features{1, l.promptRows, l.seen}, max(seconds-c.knownDecoding(l), 0), seconds)
}

// features are what a linear model multiplies with its weights: a constant, rows, their context.
type features [3]float64

// fit is a linear model whose weights are not negative: the least squares of relative errors, in which older
// measurements count less and the guess counts like weak measurements of each weight. Weights are in units of the
// guess.
type fit struct {
	guess  features
	keep   float64 // what an older measurement counts, relative to the next
	weight features
	known  bool
	a      [3]features // sums of products of features, with the guess
	b      features    // sums of products of features and times
}

// guessed is what the guess counts, relative to a measurement.
const guessed = 1e-3

func (f *fit) predict(x features) (t float64) {
	for i := range x {
		w := f.weight[i]
		if !f.known {
			w = 1
		}
		t += w * f.guess[i] * x[i]
	}
	return t
}

// learn takes a measured time; errors are relative to the time scale.
func (f *fit) learn(x features, t, scale float64) {
	if !f.known {
		f.known, f.weight = true, features{1, 1, 1}
	}
	for i := range x {
		x[i] *= f.guess[i] / scale
	}
	for i := range x {
		f.b[i] = f.keep*f.b[i] + x[i]*t/scale
		for j := range x {
			f.a[i][j] = f.keep*f.a[i][j] + x[i]*x[j]
		}
	}
	const sweeps = 16 // of coordinate descent, from the weights before
	for range sweeps {
		for i := range x {
			rest := f.b[i] + guessed
			for j := range x {
				if j != i {
					rest -= f.a[i][j] * f.weight[j]
				}
			}
			f.weight[i] = max(rest/(f.a[i][i]+guessed), 0)
		}
	}
}
