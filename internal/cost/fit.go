package cost

// Features are the inputs of a Fit, such as 1, rows and keys; unused features are 0.
type Features [4]float64

// Fit is a linear model of time with non-negative weights: least squares of relative errors, in which older
// measurements have less weight. A small penalty for changes keeps the weights of features that no measurement has.
type Fit struct {
	guess  Features // seconds of each feature before the first observation
	keep   float64  // weight of an older measurement relative to the next one; 1 keeps all measurements
	weight Features // fitted time of each feature, relative to guess; 1 at the beginning
	a      [len(Features{})]Features
	b      Features // a * weight = b holds the sums of products of features, and of features and times
}

// NewFit returns a fit that predicts by guesses until its first observation. The guess of every used feature must be
// above 0.
func NewFit(keep float64, guess Features) Fit {
	return Fit{guess: guess, keep: keep, weight: Features{1, 1, 1, 1}}
}

// pull is the factor of the penalty for changing coefficients; a measurement has the factor 1.
const pull = 1e-3

// Predict returns the time of features in seconds.
func (f *Fit) Predict(x Features) (seconds float64) {
	for i := range x {
		seconds += f.Each(i) * x[i]
	}
	return seconds
}

// Each returns the fitted time of feature i in seconds.
func (f *Fit) Each(i int) float64 { return f.weight[i] * f.guess[i] }

// Observe adds the measured seconds of features. Errors are relative to scale: seconds or, if the features explain only
// a part of a total time, that total.
func (f *Fit) Observe(x Features, seconds, scale float64) {
	for i := range x {
		x[i] *= f.guess[i] / scale
	}
	for i := range x {
		f.b[i] = f.keep*f.b[i] + x[i]*seconds/scale
		for j := range x {
			f.a[i][j] = f.keep*f.a[i][j] + x[i]*x[j]
		}
	}
	f.solve()
}

// solve computes the weights with the smallest error. A negative weight is replaced by 0.
func (f *Fit) solve() {
	used := [len(Features{})]bool{true, true, true, true}
	for {
		w, least := f.minimum(used), 0
		for i := range w {
			if w[i] < w[least] {
				least = i
			}
		}
		if w[least] >= 0 {
			f.weight = w
			return
		}
		used[least] = false
	}
}

// minimum solves the equations for the used weights, by elimination: with the penalty, the matrix is positive definite.
func (f *Fit) minimum(used [len(Features{})]bool) (w Features) {
	a, b := f.a, f.b
	for i := range w {
		a[i][i] += pull
		b[i] += pull * f.weight[i]
	}
	for i := range w {
		for j := range w {
			if i == j || !used[i] || !used[j] {
				continue
			}
			ratio := a[j][i] / a[i][i]
			for k := range w {
				a[j][k] -= ratio * a[i][k]
			}
			b[j] -= ratio * b[i]
		}
	}
	for i := range w {
		if used[i] {
			w[i] = b[i] / a[i][i]
		}
	}
	return w
}
