package spec

// line estimates how the time of a pass depends on its rows: fixed + each*rows, by least squares over the recent past.
type line struct {
	weight, x, y, xx, xy float64 // decayed sums
}

const (
	// memory is what is left of an old measurement's weight with every new one: the last fifty or so count. Costs drift with the length of
	// contexts and with whatever else the machine does.
	memory = 0.98
	// fixedShare is how much of a pass is taken not to depend on its rows while all passes had equally many. Decoding reads every weight
	// once, however many rows there are.
	fixedShare = 0.7
	// outlier bounds a measurement, as a multiple of what was expected: a pass the machine was interrupted in says nothing about its cost.
	outlier = 4.0
)

// add notes that a pass of that many rows took so many seconds.
func (l *line) add(rows int, seconds float64) {
	if rows < 1 || seconds <= 0 {
		return
	}
	x := float64(rows)
	if l.weight > 2 {
		seconds = min(seconds, outlier*l.at(x, 1))
	}
	l.weight = l.weight*memory + 1
	l.x = l.x*memory + x
	l.y = l.y*memory + seconds
	l.xx = l.xx*memory + x*x
	l.xy = l.xy*memory + x*seconds
}

// known tells whether anything was measured.
func (l *line) known() bool { return l.weight > 0 }

// fit is the estimate; both parts are positive.
func (l *line) fit() (fixed, each float64) {
	x, y := l.x/l.weight, l.y/l.weight
	if spread := l.xx/l.weight - x*x; spread > 0.05 {
		each = (l.xy/l.weight - x*y) / spread
		// Rows are never free and never all of the cost; noise may say so.
		each = min(max(each, 0.02*y/x), 0.98*y/x)
		return y - each*x, each
	}
	return fixedShare * y, (1 - fixedShare) * y / x
}

// at is what rows rows of one of share sequences cost: its own rows and its share of what is fixed.
func (l *line) at(rows, share float64) float64 {
	fixed, each := l.fit()
	return fixed/share + each*rows
}
