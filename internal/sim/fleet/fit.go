package fleet

import (
	"fmt"
	"math"
	"time"

	"sparrow/internal/cost"
	"sparrow/internal/sim/formula"
)

// Sample is a measurement: the number of steps, of their prompt rows, of their decode rows and of the keys that rows
// attended to, and the total time.
type Sample struct {
	Steps, Prompt, Decode, Keys int
	Took                        time.Duration
}

// Fit returns the non-negative costs that best predict the times of the samples.
func Fit(samples []Sample) (formula.Cost, error) {
	var costs [4]time.Duration
	high, low := fitFrom(1, samples), fitFrom(0.1, samples)
	for i := range costs {
		// A cost that the samples determine does not depend on the initial guess.
		a, b := high.Each(i), low.Each(i)
		if math.Abs(a-b) > 0.01*a {
			return formula.Cost{}, fmt.Errorf("fleet: %d samples do not determine the costs: prompts and decodes are "+
				"needed, of different sizes and after different contexts", len(samples))
		}
		costs[i] = time.Duration(a * 1e9)
	}
	return formula.Cost{Pass: max(costs[0], 1), Row: costs[1], Decode: costs[2], Keys: costs[3]}, nil
}

// fitFrom fits the samples from an initial guess: guess is the milliseconds of a step, from which the guesses for rows
// and keys are derived. The samples are used repeatedly, until the guess has no effect.
func fitFrom(guess float64, samples []Sample) cost.Fit {
	f := cost.NewFit(1, cost.Features{guess * 1e-3, guess * 1e-4, guess * 1e-4, guess * 1e-6})
	for range 20 {
		for _, s := range samples {
			if took := s.Took.Seconds(); took > 0 {
				f.Observe(cost.Features{float64(s.Steps), float64(s.Prompt), float64(s.Decode), float64(s.Keys) / 1000},
					took, took)
			}
		}
	}
	return f
}
