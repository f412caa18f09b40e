package spec

import "sparrow/internal/cost"

// pass estimates the time of one kind of pass from its number of rows.
type pass struct {
	fit   cost.Fit
	known bool // at least one time was measured
}

const (
	// sharedDecay is the factor by which the weight of earlier measurements decreases with each new measurement: about
	// the last fifty measurements have an effect. Costs change with the length of contexts and with other load on the
	// machine.
	sharedDecay = 0.98
	// fixedShare is the part of a pass's time that is assumed to be independent of its rows as long as all passes had
	// the same number of rows. Decoding reads every weight once for any number of rows.
	fixedShare = 0.7
	// leastRow is the minimum time of a row, relative to the fixed part: noise in the measurements may give zero or
	// less.
	leastRow = 0.01
)

// add records the time of a pass, in seconds, and its number of rows.
func (p *pass) add(rows int, seconds float64) {
	if rows < 1 || seconds <= 0 {
		return
	}
	x := cost.Features{1, float64(rows)}
	if !p.known {
		p.fit = cost.NewFit(sharedDecay, cost.Features{fixedShare * seconds, (1 - fixedShare) * seconds / x[1]})
	}
	p.known = true
	seconds = min(seconds, cost.Outlier*p.fit.Predict(x))
	p.fit.Observe(x, seconds, seconds)
}

// at returns the seconds of the given number of rows plus 1/share of the fixed time of a pass, for one of share
// sequences in the pass.
func (p *pass) at(rows, share float64) float64 {
	fixed := p.fit.Each(0)
	return fixed/share + max(p.fit.Each(1), leastRow*fixed)*rows
}
