// Package testkit compares results with the reference. Its tests are suites for every device: each runs an operation on
// a device and on the reference, with every layout, odd sizes and edge cases. Only tests import it.
package testkit

import (
	"fmt"
	"math"
)

// Near compares the rows of two results, each of the given number of values: the relative difference of a value, to
// itself or to the root mean square of its row if that is larger, may be at most tol. The root mean square of a row's
// differences, relative to that of its values, may be at most nearNoise times tol. There is no absolute tolerance,
// because values of attention over a thousand keys are a few hundredths. Equal infinities do not differ. It returns the
// largest differences as fractions of the tolerance.
func Near(got, want []float64, row int, tol float64) (value, noise float64, err error) {
	if len(got) != len(want) || row < 1 || len(want)%row != 0 {
		return 0, 0, fmt.Errorf("got %d values, want %d values in rows of %d", len(got), len(want), row)
	}
	for first := 0; first < len(want); first += row {
		var size, diff float64
		for i, w := range want[first:][:row] {
			if !math.IsInf(w, 0) {
				size += w * w
			}
			if d := got[first+i] - w; got[first+i] != w {
				diff += d * d
			}
		}
		rms := math.Sqrt(size / float64(row))
		for i, w := range want[first:][:row] {
			g := got[first+i]
			if g == w {
				continue
			}
			d := math.Abs(g-w) / max(tol*max(math.Abs(w), rms), math.SmallestNonzeroFloat64)
			if value = max(value, d); !(d <= 1) && err == nil {
				err = fmt.Errorf("row %d, value %d is %v, want %v: the difference is more than %.2g of the larger of "+
					"it and the "+
					"row's %.3g", first/row, i, g, w, tol, rms)
			}
		}
		if diff == 0 || row == 1 { // a row of one value has only this difference
			continue
		}
		n := math.Sqrt(diff/float64(row)) / max(tol*nearNoise*rms, math.SmallestNonzeroFloat64)
		if noise = max(noise, n); !(n <= 1) && err == nil {
			err = fmt.Errorf("row %d has a relative L2 error of %.3g, want at most %.3g", first/row,
				math.Sqrt(diff/float64(row))/rms, tol*nearNoise)
		}
	}
	return value, noise, err
}

// nearNoise is the allowed root mean square difference of a row, as a fraction of the allowed difference of one value.
const nearNoise = 0.4
