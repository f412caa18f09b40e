package eval

import (
	"fmt"
	"io"
	"math"
)

// Repeats holds several runs of one runner on the same items.
type Repeats struct {
	By    About    `json:"by"`
	Tasks []Spread `json:"tasks"`
	Total Spread   `json:"total"`
	// Different is the number of items whose outputs differ between runs.
	Different int       `json:"different"`
	Reports   []*Report `json:"reports"`
}

// Spread holds statistics of a task's scores over several runs; Task is empty for all tasks together.
type Spread struct {
	Task            string  `json:"task,omitempty"`
	Items           int     `json:"items"`
	Exact           Summary `json:"exact"` // share of items with exact answers
	Final           Summary `json:"final"`
	TokensPerSecond Summary `json:"tokens_per_second"`
}

// Summary holds the mean of a value over runs, its sample standard deviation, minimum and maximum.
type Summary struct {
	Mean      float64 `json:"mean"`
	Deviation float64 `json:"deviation"`
	Least     float64 `json:"least"`
	Most      float64 `json:"most"`
}

// Repeated compares several reports of one runner on the same items.
func Repeated(reports []*Report) (*Repeats, error) {
	c, err := Compare(reports, 0)
	if err != nil {
		return nil, err
	}
	first := reports[0]
	out := &Repeats{By: first.By, Different: c.Different, Reports: reports}
	for i, t := range first.Tasks {
		out.Tasks = append(out.Tasks, spread(reports, t.Task, func(r *Report) *Score { return &r.Tasks[i] }))
	}
	out.Total = spread(reports, "", func(r *Report) *Score { return &r.Total })
	return out, nil
}

func spread(reports []*Report, task string, of func(*Report) *Score) Spread {
	var exact, final, speed []float64
	for _, r := range reports {
		s := of(r)
		exact, final = append(exact, s.Accuracy()), append(final, share(s.Final, s.Items))
		speed = append(speed, s.TokensPerSecond)
	}
	return Spread{Task: task, Items: of(reports[0]).Items, Exact: summarise(exact), Final: summarise(final),
		TokensPerSecond: summarise(speed)}
}

func summarise(v []float64) Summary {
	s := Summary{Least: v[0], Most: v[0]}
	for _, x := range v {
		s.Mean += x / float64(len(v))
		s.Least, s.Most = min(s.Least, x), max(s.Most, x)
	}
	if len(v) > 1 {
		for _, x := range v {
			s.Deviation += (x - s.Mean) * (x - s.Mean) / float64(len(v)-1)
		}
		s.Deviation = math.Sqrt(s.Deviation)
	}
	return s
}

// Print writes means and spreads as plain text.
func (r *Repeats) Print(w io.Writer) error {
	p := &printer{w: w}
	p.line("%s, %d runs: mean ± standard deviation (minimum to maximum)", r.By.String(), len(r.Reports))
	rows := [][]string{{"task", "items", "exact %", "final %", "output tokens/s"}}
	for i := range r.Tasks {
		rows = append(rows, r.Tasks[i].cells(r.Tasks[i].Task))
	}
	p.table(append(rows, r.Total.cells("all")))
	p.line("\n%d of %d items had an output that was not the same in all runs", r.Different, r.Total.Items)
	return p.err
}

func (s *Spread) cells(name string) []string {
	cell := func(s Summary, scale float64) string {
		return fmt.Sprintf("%.1f ± %.1f (%.1f to %.1f)", scale*s.Mean, scale*s.Deviation, scale*s.Least, scale*s.Most)
	}
	return []string{name, fmt.Sprint(s.Items), cell(s.Exact, 100), cell(s.Final, 100), cell(s.TokensPerSecond, 1)}
}
