// Package harness holds the code that the kernel benchmarks of all devices share.
//
// A case is an operation at a shape. The package selects cases, runs them one after the other, and computes the median
// and spread of the times that the device's timer measured.
package harness

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Case names an operation at a shape. The case types of a device embed Case.
type Case struct {
	Name, Shape string
	// Called holds other names of the operation that Match accepts.
	Called string
}

// Title returns the name and the shape of the case.
func (c Case) Title() string { return c.Name + " " + c.Shape }

// Names returns the case itself.
func (c Case) Names() Case { return c }

// Named is implemented by the case types of all devices.
type Named interface{ Names() Case }

// Match returns the cases whose name, shape or other names contain one of the texts, ignoring case; without texts it
// returns all.
func Match[C Named](cases []C, only []string) ([]C, error) {
	if len(only) == 0 {
		return cases, nil
	}
	var out []C
	var names []string
	for _, c := range cases {
		n := c.Names()
		text := strings.ToLower(n.Title() + "\n" + n.Called)
		if slices.ContainsFunc(only, func(s string) bool { return strings.Contains(text, strings.ToLower(s)) }) {
			out = append(out, c)
		}
		if !slices.Contains(names, n.Name) {
			names = append(names, n.Name)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no case contains %s; the cases are %s", strings.Join(only, " or "),
			strings.Join(names, ", "))
	}
	return out, nil
}

// Progress is called with the number of finished cases and the next case.
type Progress func(done, total int, what string)

// Each runs cases one after the other until ctx ends. If a case fails, the other cases still run; all errors are
// joined.
func Each[C Named](ctx context.Context, cases []C, progress Progress, run func(C) error) error {
	var errs []error
	for i, c := range cases {
		if ctx.Err() != nil {
			break
		}
		if progress != nil {
			progress(i, len(cases), c.Names().Title())
		}
		errs = append(errs, run(c))
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// Times holds the distribution of a case's times.
type Times struct {
	Median, Min, Max float64
	Spread           float64 // (90th - 10th percentile) / median
}

// Summarise sorts times and returns their distribution; there must be at least one time.
func Summarise(times []float64) Times {
	t := slices.Sorted(slices.Values(times))
	at := func(q float64) float64 { return t[int(math.Round(q*float64(len(t)-1)))] }
	return Times{Median: at(0.5), Min: t[0], Max: t[len(t)-1], Spread: (at(0.9) - at(0.1)) / at(0.5)}
}
