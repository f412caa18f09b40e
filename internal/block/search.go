package block

import "math"

// trials is the number of initial scales that a search tries.
const trials = 21

// wholeAt is added to a float32 number within ±2^22 and subtracted again, which rounds it to an integer, halves to
// even.
const wholeAt = 3 << 22

// lanes holds eight searches that run in parallel; element l of each row belongs to search l. A sum adds the values of
// a search in order, and products are rounded before they are added, so that results are bitwise equal on every
// processor.
type lanes struct {
	x, weights, above, codes [32][8]float32
	first                    [8]float32 // initial scale of the current trial
	top                      [8]float32 // maximum code
	wq, wqq, wqx             [8]float32 // sums of the current trial: of w*q, w*q*q and w*q*x
	s, m, e                  [8]float32 // scale, minimum and error of the current trial
}

// affine finds, for each 32 of 256 values x, a scale and a minimum so that scale*q - least approximates x, for q in
// 0..top and least >= 0. Each trial rounds with an initial scale and then fits scale and minimum to the codes by
// least squares. Large values have more weight, because they affect products more; importance, unless nil, is a factor
// of the weights.
func (a *lanes) affine(x, importance []float32, top int) (scales, leasts [8]float32) {
	var w, wx, width, best [8]float32
	for l := range 8 {
		v := x[32*l:][:32]
		low, high, mean := float32(0), v[0], float32(0)
		for _, v := range v {
			if v < low {
				low = v
			}
			if v > high {
				high = v
			}
			mean += float32(v * v)
		}
		mean = float32(math.Sqrt(float64(mean / 32)))
		width[l], a.top[l], best[l] = high-low, float32(top), float32(math.Inf(1))
		switch { // errors are at least 0, so -1 means none
		case !(mean <= math.MaxFloat32): // values contain NaN or are too large
			width[l], best[l] = 1, -1
		case high == low || (a.top[l]+1)/width[l] > math.MaxFloat32: // the width is too small for a float16 scale
			leasts[l], width[l], best[l] = -low, 1, -1
		}
		for i, v := range v {
			weight := mean + abs(v)
			if importance != nil {
				weight *= importance[32*l+i]
			}
			a.x[i][l], a.weights[i][l], a.above[i][l] = v, weight, v-low
			w[l], wx[l] = w[l]+weight, wx[l]+float32(weight*v)
		}
	}
	for t := range trials {
		for l := range 8 {
			a.first[l] = (a.top[l] - 1 + float32(0.1*float32(t))) / width[l] // scales for codes from top-1 to top+1
		}
		affineSums(a)
		var skip [8]bool
		for l := range 8 {
			w, wq, wqq, wx, wqx := w[l], a.wq[l], a.wqq[l], wx[l], a.wqx[l]
			det := float32(w*wqq) - float32(wq*wq)
			skip[l] = det <= 0
			a.s[l] = (float32(w*wqx) - float32(wq*wx)) / det
			a.m[l] = (float32(wqq*wx) - float32(wq*wqx)) / det
			if a.m[l] > 0 { // only minimums at or below zero can be stored
				a.s[l], a.m[l] = wqx/wqq, 0
			}
		}
		affineErrors(a)
		for l, e := range a.e {
			if e < best[l] && !skip[l] {
				best[l], scales[l], leasts[l] = e, a.s[l], -a.m[l]
			}
		}
	}
	return scales, leasts
}

// affineSumsGo rounds the values with the initial scales and computes the sums for the least-squares fits.
func affineSumsGo(a *lanes) {
	a.wq, a.wqq, a.wqx = [8]float32{}, [8]float32{}, [8]float32{}
	for i := range a.x {
		for l := range 8 {
			q := float32(float32(a.first[l]*a.above[i][l])+wholeAt) - wholeAt
			if q > a.top[l] {
				q = a.top[l]
			}
			a.codes[i][l] = q
			u := float32(a.weights[i][l] * q)
			a.wq[l] += u
			a.wqq[l] += float32(u * q)
			a.wqx[l] += float32(u * a.x[i][l])
		}
	}
}

// affineErrorsGo computes the weighted squared error of each search.
func affineErrorsGo(a *lanes) {
	a.e = [8]float32{}
	for i := range a.x {
		for l := range 8 {
			d := float32(a.s[l]*a.codes[i][l]) + a.m[l] - a.x[i][l]
			a.e[l] += float32(float32(a.weights[i][l]*d) * d)
		}
	}
}

// symmetric finds, for each 16 of 128 values x, a scale so that scale*q approximates x for q in -32..31. importance,
// unless nil, is a factor of the weights.
func (a *lanes) symmetric(x, importance []float32) (scales [8]float32) {
	var most, best [8]float32
	for l := range 8 {
		v := x[16*l:][:16]
		most[l], best[l] = furthest(v), -1
		for i, v := range v {
			a.x[i][l], a.weights[i][l] = v, float32(v*v)
			if importance != nil {
				a.weights[i][l] *= importance[16*l+i]
			}
		}
		if most[l] == 0 {
			most[l], best[l] = 1, float32(math.Inf(1))
		}
	}
	for t := range trials {
		for l := range 8 {
			a.first[l] = -(31 + float32(0.1*float32(t))) / most[l] // the largest magnitude becomes about -32
		}
		symmetricSums(a)
		for l := range 8 {
			wqx, wqq := a.wqx[l], a.wqq[l]
			if wqq > 0 && float32(wqx*wqx) > float32(best[l]*wqq) { // the error decreases as wqx*wqx/wqq increases
				best[l], scales[l] = float32(wqx*wqx)/wqq, wqx/wqq
			}
		}
	}
	return scales
}

// symmetricSumsGo rounds the first 16 values of each search with the initial scales and computes the sums for the
// least-squares fits. The weight of a value is its square.
func symmetricSumsGo(a *lanes) {
	a.wqq, a.wqx = [8]float32{}, [8]float32{}
	for i := range 16 {
		for l := range 8 {
			v := a.x[i][l]
			q := float32(float32(a.first[l]*v)+wholeAt) - wholeAt
			if q > 31 {
				q = 31
			}
			if q < -32 {
				q = -32
			}
			u := float32(a.weights[i][l] * q)
			a.wqx[l] += float32(u * v)
			a.wqq[l] += float32(u * q)
		}
	}
}
