package spec

// line estimates how the time of a pass depends on its rows: fixed + each*rows, by least squares over the recent past.
type line struct {
	weight, x, y, xx, xy float64 // decayed sums
}

const (
	// sharedDecay is the weight that earlier measurements keep with each new one: about the last fifty count. Costs
	// change with the length of contexts and with whatever else the machine does.
	sharedDecay = 0.98
	// fixedShare is the part of a pass's time that is assumed not to depend on its rows while all passes had equally
	// many. Decoding reads every weight once, however many rows there are.
	fixedShare = 0.7
	// maxExcess bounds a measurement as a multiple of the estimate: a pass during which the machine was interrupted
	// says nothing about its cost.
	maxExcess = 4.0
)

// add notes that a pass of that many rows took so many seconds.
func (l *line) add(rows int, seconds float64) {
	if rows < 1 || seconds <= 0 {
		return
	}
	x := float64(rows)
	if l.weight > 2 {
		seconds = min(seconds, maxExcess*l.at(x, 1))
	}
	l.weight = l.weight*sharedDecay + 1
	l.x = l.x*sharedDecay + x
	l.y = l.y*sharedDecay + seconds
	l.xx = l.xx*sharedDecay + x*x
	l.xy = l.xy*sharedDecay + x*seconds
}

// known reports whether anything was measured.
func (l *line) known() bool { return l.weight > 0 }

// fit is the estimate; both parts are positive.
func (l *line) fit() (fixed, each float64) {
	x, y := l.x/l.weight, l.y/l.weight
	if spread := l.xx/l.weight - x*x; spread > 0.05 {
		each = (l.xy/l.weight - x*y) / spread
		// Noise may estimate that rows cost nothing, or everything; neither is ever true.
		each = min(max(each, 0.02*y/x), 0.98*y/x)
		return y - each*x, each
	}
	return fixedShare * y, (1 - fixedShare) * y / x
}

// at is the cost of that many rows to one of share sequences: its own rows and its share of the fixed part.
func (l *line) at(rows, share float64) float64 {
	fixed, each := l.fit()
	return fixed/share + each*rows
}
