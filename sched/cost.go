package sched

// load is what a batch computes, as far as its time depends on it.
type load struct {
	decode    part // sequences that decode, drafts included
	near, far part // prompts before and behind Limits.Threshold
	smallest  bool // prompts were cut to the smallest chunk
	apart     bool // sequences that decode are left out
	divided   bool // the same, and they may run meanwhile
}

// part is rows of one kind. A row costs the more the more tokens it may see.
type part struct {
	rows float64
	seen float64 // sum over rows of the tokens that each may see, in thousands
}

// add adds n rows of a sequence behind cached tokens.
func (p *part) add(n, cached int) {
	p.rows += float64(n)
	p.seen += float64(n) * (float64(cached) + float64(n)/2) / 1000
}

func (p *part) features() features { return features{1, p.rows, p.seen} }

// addPrompt adds n tokens of a prompt.
func (l *load) addPrompt(n, cached, threshold int) {
	near := min(max(threshold-cached, 0), n)
	l.near.add(near, cached)
	l.far.add(n-near, cached+near)
}

// prompts is how many rows belong to prompts.
func (l *load) prompts() float64 { return l.near.rows + l.far.rows }

// cost predicts the time of a batch in seconds, from batches that were measured. What decoding takes and what prompts
// add, near and far, are learned apart: thousands of batches without prompts do not make it forget what prompts cost,
// nor short prompts what long ones cost.
type cost struct {
	decode, near, far fit
	measured          int     // batches with prompts
	nearRows, farRows float64 // of prompts that one of the latest of them had
	most              float64 // rows of a batch without prompts that was measured
	late              float64 // what nearly all batches with prompts take at most, relative to the prediction
}

// The first guesses, in seconds: of a batch, a row, and a thousand tokens that a row sees. They are above what small
// models take. Where a model takes more, the first batches correct them.
func newCost() cost {
	return cost{
		decode: newFit(features{1e-3, 1e-3, 1e-4}, 0.98),
		near:   newFit(features{1e-3, 2e-3, 2e-4}, 0.9),
		far:    newFit(features{1e-3, 2e-3, 2e-4}, 0.9),
		late:   firstLate,
	}
}

// decoding predicts the time of a batch's decodes alone.
func (c *cost) decoding(l *load) float64 { return c.decode.predict(l.decode.features()) }

// of predicts the time of a batch.
func (c *cost) of(l *load) float64 { return c.decoding(l) + c.near.add(&l.near) + c.far.add(&l.far) }

// knownDecoding is decoding as far as it was measured: what is only guessed is left to the prompts, so that they are
// rather thought too slow than too fast.
func (c *cost) knownDecoding(l *load) float64 {
	if c.most == 0 {
		return 0
	}
	known := *l
	if rows := l.decode.rows; rows > c.most {
		known.decode = part{c.most, l.decode.seen * c.most / rows}
	}
	return c.decoding(&known)
}

// outlier bounds what one measurement may say, as a multiple of what was predicted: the machine may have done something
// else. A change that lasts is learned from a few measurements.
const outlier = 3

// late is learned as the time, relative to the prediction, that one of lateShare batches exceeds: it moves up by a
// tenth with each of those, and down by so little with the others that these cancel. A single delay moves it as much as
// any other late batch: no margin is wide enough for what the machine does once in a hundred batches.
const (
	firstLate, leastLate, mostLate = 1.25, 1.1, 2.0
	lateShare, lateStep            = 0.03, 0.1
)

// note takes the ratio of a measured to a predicted time.
func (c *cost) note(ratio float64) {
	if ratio > c.late {
		c.late *= 1 + lateStep*(1-lateShare)
	} else {
		c.late *= 1 - lateStep*lateShare
	}
	c.late = min(max(c.late, leastLate), mostLate)
}

// Predictions hold for batches of about as many rows of prompts as were measured: at most beyond times as many. What
// was measured is forgotten by the part fade with every batch.
const beyond, fade = 1.5, 0.1

// trusts reports whether a batch is like those that were measured, or has a small chunk of prompts.
func (c *cost) trusts(l *load) bool {
	return l.near.rows <= max(beyond*c.nearRows, SmallestChunk) && l.far.rows <= max(beyond*c.farRows, SmallestChunk)
}

// learn takes the measured time of a batch.
func (c *cost) learn(l *load, seconds float64) {
	if seconds <= 0 {
		return
	}
	predicted := c.of(l)
	ratio := seconds / predicted
	seconds = min(seconds, outlier*predicted)
	if l.prompts() == 0 {
		c.most = max(c.most, l.decode.rows)
		c.decode.learn(l.decode.features(), seconds, seconds)
		return
	}
	if c.measured++; l.decode.rows > 0 {
		c.note(ratio)
	}
	if l.decode.rows > 0 && c.decoding(l) > seconds {
		// The decodes alone were thought to take longer than all of it: there was no batch without prompts yet.
		c.decode.learn(l.decode.features(), seconds, seconds)
	}
	c.nearRows, c.farRows = max(l.near.rows, c.nearRows*(1-fade)), max(l.far.rows, c.farRows*(1-fade))
	// Where prompts are near and far, each has the share of the time that was predicted.
	added := max(seconds-c.knownDecoding(l), 0)
	near, far := c.near.add(&l.near), c.far.add(&l.far)
	if near > 0 {
		c.near.learn(l.near.features(), added*near/(near+far), seconds)
	}
	if far > 0 {
		c.far.learn(l.far.features(), added*far/(near+far), seconds)
	}
}

// features are what a linear model multiplies with its weights: a constant, rows, what they see.
type features [3]float64

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
	return fit{guess: guess, keep: keep, weight: features{1, 1, 1}}
}

// pull is what the weights before count, relative to a measurement.
const pull = 1e-3

func (f *fit) predict(x features) (t float64) {
	for i := range x {
		t += f.weight[i] * f.guess[i] * x[i]
	}
	return t
}

// add predicts the time that a part of a batch adds.
func (f *fit) add(p *part) float64 {
	if p.rows == 0 {
		return 0
	}
	return f.predict(p.features())
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
