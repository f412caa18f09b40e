// Package testkit compares results with the reference. Its tests are the suites that every device must pass: each runs
// an operation on a device and on the reference, over every layout, odd sizes and the corner cases of its contract.
// Only tests import it.
package testkit

import (
	"fmt"
	"math"
)

// Near compares the rows of two results, each of the given number of values: a value may differ by the share tol of
// itself or of the root mean square of its row, whichever is larger; the root mean square of the differences of a row
// may be at most nearNoise times tol, relative to that of the row. There is no absolute tolerance, because values of
// attention over a thousand keys are a few hundredths. Infinities are equal to themselves. It returns the largest
// differences as shares of the tolerance.
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

// nearNoise is the allowed root mean square difference of a row, as a share of the allowed difference of one value.
const nearNoise = 0.4
