package fleet

import (
	"fmt"
	"math"
	"time"

	"sparrow/sim/formula"
)

// Sample is work that was measured: steps, their rows of prompts, their rows that decode, the keys that rows have seen,
// and the time of all.
type Sample struct {
	Steps, Prompt, Decode, Keys int
	Took                        time.Duration
}

// causes is what takes time: steps, rows of prompts, rows that decode, keys.
const causes = 4

// Fit finds the costs that explain samples best, by least squares of their relative errors; no cost is negative.
func Fit(samples []Sample) (formula.Cost, error) {
	var a equations
	for _, s := range samples {
		took := s.Took.Seconds()
		if took <= 0 {
			continue
		}
		x := [causes]float64{float64(s.Steps) / took, float64(s.Prompt) / took, float64(s.Decode) / took,
			float64(s.Keys) / 1000 / took}
		for i := range x {
			for j := range x {
				a[i][j] += x[i] * x[j]
			}
			a[i][causes] += x[i]
		}
	}
	used := [causes]bool{true, true, true, true}
	for {
		seconds, ok := solve(a, used)
		if !ok {
			return formula.Cost{}, fmt.Errorf("fleet: %d samples do not determine the costs: prompts and decodes are "+
				"needed, of different sizes and behind different contexts", len(samples))
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
		return formula.Cost{Pass: max(at(0), 1), Row: at(1), Decode: at(2), Keys: at(3)}, nil
	}
}

// equations are linear ones, of which the last column is the right side.
type equations [causes][causes + 1]float64

// solve finds the unknowns that are used; the others are 0. It is not ok where the equations do not determine them.
func solve(a equations, used [causes]bool) (x [causes]float64, ok bool) {
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
			x[i] = a[i][causes] / a[i][i]
		}
	}
	return x, true
}
