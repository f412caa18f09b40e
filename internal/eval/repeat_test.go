package eval

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"
)

// Two tasks are run three times. The second item of the second task is exact only in the first run, so that this task
// has 50 % in the other runs; its final value is always right. The shares of the other items are the same in every run.
func TestRepeated(t *testing.T) {
	run := 0
	s := &scripted{answer: func(_ context.Context, it *Item, _ int) (Reply, error) {
		if it.Task == "task1" && it.Line == 2 && run > 0 {
			r := right(it)
			r.Text += "!"
			return r, nil
		}
		return right(it), nil
	}}
	var reports []*Report
	tasks := items(t, 2, 2)
	for run = range 3 {
		r, err := Run(t.Context(), s, tasks, Options{})
		if err != nil {
			t.Fatal(err)
		}
		reports = append(reports, r)
	}
	got, err := Repeated(reports)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Summary{Mean: 1, Least: 1, Most: 1}); !alike(got.Tasks[0].Exact, want) {
		t.Errorf("task 0: %+v, want %+v", got.Tasks[0].Exact, want)
	}
	// The shares are 1, 1/2 and 1/2: their mean is 2/3, and the squares of their deviations add up to 1/6.
	if want := (Summary{Mean: 2. / 3, Deviation: math.Sqrt(1. / 12), Least: 0.5, Most: 1}); !alike(got.Tasks[1].Exact,
		want) {
		t.Errorf("task 1: %+v, want %+v", got.Tasks[1].Exact, want)
	}
	if want := (Summary{Mean: 1, Least: 1, Most: 1}); !alike(got.Tasks[1].Final, want) {
		t.Errorf("final values of task 1: %+v, want %+v", got.Tasks[1].Final, want)
	}
	if got.Total.Items != 4 || got.Different != 1 || !alike(got.Total.Exact, Summary{Mean: 5. / 6,
		Deviation: math.Sqrt(1. / 48), Least: 0.75, Most: 1}) {
		t.Errorf("all: %+v, %d different", got.Total, got.Different)
	}
	var text bytes.Buffer
	if err := got.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"3 runs", "66.7 ± 28.9 (50.0 to 100.0)", "1 of 4 items"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in:\n%s", want, text.String())
		}
	}
}

func alike(a, b Summary) bool {
	near := func(x, y float64) bool { return math.Abs(x-y) < 1e-12 }
	return near(a.Mean, b.Mean) && near(a.Deviation, b.Deviation) && near(a.Least, b.Least) && near(a.Most, b.Most)
}
