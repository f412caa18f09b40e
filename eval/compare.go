package eval

import "fmt"

// Comparison is the same items under several plans.
type Comparison struct {
	Reports []*Report `json:"reports"`
	// Agreement[i][j] is the share of items to which reports i and j gave the same output, right or wrong.
	Agreement [][]float64 `json:"agreement"`
}

// Compare puts reports over the same items side by side.
func Compare(reports []*Report) (*Comparison, error) {
	c := &Comparison{Reports: reports, Agreement: make([][]float64, len(reports))}
	for i, a := range reports {
		c.Agreement[i] = make([]float64, len(reports))
		for j, b := range reports {
			same, err := agreeing(a, b)
			if err != nil {
				return nil, err
			}
			c.Agreement[i][j] = share(same, len(a.outputs))
		}
	}
	return c, nil
}

// agreeing counts the items to which both gave the same output. A failed request agrees with nothing but itself.
func agreeing(a, b *Report) (int, error) {
	if len(a.outputs) != len(b.outputs) {
		return 0, fmt.Errorf("%w: %q has %d, %q has %d", ErrItems, a.Plan, len(a.outputs), b.Plan, len(b.outputs))
	}
	same := 0
	for i := range a.outputs {
		x, y := &a.outputs[i], &b.outputs[i]
		if x.item != y.item {
			return 0, fmt.Errorf("%w: item %d is %s for %q and %s for %q", ErrItems, i+1, x.item.Where(), a.Plan, y.item.Where(), b.Plan)
		}
		if a == b || x.err == nil && y.err == nil && x.text == y.text && x.reply.Ended == y.reply.Ended {
			same++
		}
	}
	return same, nil
}
