package eval

import "fmt"

// Comparison compares the results of several plans on the same items.
type Comparison struct {
	Reports []*Report `json:"reports"`
	// Agreement[i][j] is the share of items for which reports i and j have the same output, correct or not.
	Agreement [][]float64 `json:"agreement"`
	// Differences lists the first items whose outputs differ between reports; Different is the number of all such
	// items.
	Differences []Difference `json:"differences,omitempty"`
	Different   int          `json:"different"`
}

// Difference is an item whose outputs differ between reports.
type Difference struct {
	Task string   `json:"task"`
	Line int      `json:"line"`
	Want string   `json:"want"`
	Got  []string `json:"got"` // output in each report, or the error if the request failed
}

// Compare compares reports on the same items. It lists at most most differences.
func Compare(reports []*Report, most int) (*Comparison, error) {
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
	c.differences(most)
	return c, nil
}

// differences finds the items whose outputs differ between reports.
func (c *Comparison) differences(most int) {
	if len(c.Reports) == 0 {
		return
	}
	for i := range c.Reports[0].outputs {
		first, same := &c.Reports[0].outputs[i], true
		d := Difference{Task: first.item.Task, Line: first.item.Line, Want: first.item.Answer}
		for _, r := range c.Reports {
			o := &r.outputs[i]
			same = same && (o == first || o.agrees(first))
			if o.err != nil {
				d.Got = append(d.Got, o.err.Error())
			} else {
				d.Got = append(d.Got, o.text)
			}
		}
		if same {
			continue
		}
		if c.Different++; len(c.Differences) < most {
			c.Differences = append(c.Differences, d)
		}
	}
}

// agrees reports whether two outputs are equal. The output of a failed request equals no other.
func (o *output) agrees(p *output) bool {
	return o.err == nil && p.err == nil && o.text == p.text && o.reply.Ended == p.reply.Ended
}

// agreeing returns the number of items with the same output in both reports. If both are the same report, it returns
// the number of all items.
func agreeing(a, b *Report) (int, error) {
	if len(a.outputs) != len(b.outputs) {
		return 0, fmt.Errorf("%w: the report of %q has %d items, but the report of %q has %d", ErrItems, a.Plan,
			len(a.outputs), b.Plan, len(b.outputs))
	}
	same := 0
	for i := range a.outputs {
		x, y := &a.outputs[i], &b.outputs[i]
		if x.item != y.item {
			return 0, fmt.Errorf("%w: item %d is %s for %q and %s for %q", ErrItems, i+1, x.item.Where(), a.Plan,
				y.item.Where(), b.Plan)
		}
		if a == b || x.agrees(y) {
			same++
		}
	}
	return same, nil
}
