package fleet

import (
	"fmt"
	"time"

	"sparrow/sim/formula"
)

// Pass is a pass that was measured: its rows of prompts, its rows that decode, and its time.
type Pass struct {
	Prompt, Decode int
	Took           time.Duration
}

// Fit finds the costs that explain passes best, by least squares of their relative errors. What keys add is part of the
// rows' costs: passes should have contexts like those that are planned for.
func Fit(passes []Pass) (formula.Cost, error) {
	var a [3][4]float64 // normal equations of {1, prompt, decode}
	for _, p := range passes {
		took := p.Took.Seconds()
		if took <= 0 {
			continue
		}
		x := [3]float64{1 / took, float64(p.Prompt) / took, float64(p.Decode) / took}
		for i := range x {
			for j := range x {
				a[i][j] += x[i] * x[j]
			}
			a[i][3] += x[i]
		}
	}
	for i := range a {
		if a[i][i] < 1e-12 {
			return formula.Cost{}, fmt.Errorf("fleet: %d passes do not determine the costs: passes with prompts and "+
				"passes that decode are needed, of different sizes", len(passes))
		}
		for j := range a {
			if j == i {
				continue
			}
			f := a[j][i] / a[i][i]
			for k := range a[j] {
				a[j][k] -= f * a[i][k]
			}
		}
	}
	at := func(i int) time.Duration { return time.Duration(max(a[i][3]/a[i][i], 0) * 1e9) }
	return formula.Cost{Pass: max(at(0), 1), Row: at(1), Decode: at(2)}, nil
}
