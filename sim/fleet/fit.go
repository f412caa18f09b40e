package fleet

import (
	"fmt"
	"math"
	"time"

	"sparrow/sim/formula"
)

// Sample is work that was measured: steps, their rows of prompts, their rows that decode, and the time of all.
type Sample struct {
	Steps, Prompt, Decode int
	Took                  time.Duration
}

// Fit finds the costs that explain samples best, by least squares of their relative errors; no cost is negative. What
// keys add is part of the rows' costs: samples should have contexts like those that are planned for.
func Fit(samples []Sample) (formula.Cost, error) {
	var a [3][4]float64 // normal equations of steps, rows of prompts and rows that decode
	for _, s := range samples {
		took := s.Took.Seconds()
		if took <= 0 {
			continue
		}
		x := [3]float64{float64(s.Steps) / took, float64(s.Prompt) / took, float64(s.Decode) / took}
		for i := range x {
			for j := range x {
				a[i][j] += x[i] * x[j]
			}
			a[i][3] += x[i]
		}
	}
	used := [3]bool{true, true, true}
	for {
		seconds, ok := solve(a, used)
		if !ok {
			return formula.Cost{}, fmt.Errorf("fleet: %d samples do not determine the costs: samples with prompts and "+
				"samples that decode are needed, of different sizes", len(samples))
		}
		least := 0
		for i := range seconds {
			if seconds[i] < seconds[least] {
				least = i
			}
		}
		if seconds[least] < 0 { // the others explain it better without
			used[least] = false
			continue
		}
		at := func(i int) time.Duration { return time.Duration(seconds[i] * 1e9) }
		return formula.Cost{Pass: max(at(0), 1), Row: at(1), Decode: at(2)}, nil
	}
}

// solve finds the unknowns that are used; the others are 0. It is not ok where the equations do not determine them.
func solve(a [3][4]float64, used [3]bool) (x [3]float64, ok bool) {
	for i := range a {
		if !used[i] {
			continue
		}
		if math.Abs(a[i][i]) < 1e-9 {
			return x, false
		}
		for j := range a {
			if j == i || !used[j] {
				continue
			}
			f := a[j][i] / a[i][i]
			for k := range a[j] {
				a[j][k] -= f * a[i][k]
			}
		}
	}
	for i := range a {
		if used[i] {
			x[i] = a[i][3] / a[i][i]
		}
	}
	return x, true
}
