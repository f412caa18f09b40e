package eval

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// scripted answers items with a function and counts the items that run concurrently.
type scripted struct {
	answer    func(ctx context.Context, it *Item, most int) (Reply, error)
	now, most atomic.Int32
}

func (s *scripted) About() About { return About{Model: "scripted", Kernels: "none", Layout: "no"} }

func (s *scripted) Answer(ctx context.Context, it *Item, most int) (Reply, error) {
	n := s.now.Add(1)
	defer s.now.Add(-1)
	for m := s.most.Load(); n > m && !s.most.CompareAndSwap(m, n); m = s.most.Load() {
	}
	return s.answer(ctx, it, most)
}

func right(it *Item) Reply {
	return Reply{Raw: true, Text: it.Answer, Ended: true, PromptTokens: 10, CachedTokens: 2, CompletionTokens: 3}
}

// items returns tasks with the given numbers of items. The answer of each item is its index.
func items(t *testing.T, counts ...int) []Task {
	t.Helper()
	var tasks []Task
	for i, n := range counts {
		task := Task{Name: fmt.Sprintf("task%d", i)}
		for line := range n {
			it := item(t, fmt.Sprintf("answer %d of %d", line, i), "")
			it.Task, it.Line = task.Name, line+1
			task.Items = append(task.Items, it)
		}
		tasks = append(tasks, task)
	}
	return tasks
}

func TestRunCounts(t *testing.T) {
	s := &scripted{answer: func(_ context.Context, it *Item, most int) (Reply, error) {
		if most != len(it.Answer)+answerSlack {
			t.Errorf("%s may have %d tokens", it.Where(), most)
		}
		switch {
		case it.Task == "task0" && it.Line == 2:
			return Reply{}, errors.New("no power")
		case it.Task == "task1" && it.Line%2 == 0:
			r := right(it)
			r.Text += "!"
			return r, nil
		}
		return right(it), nil
	}}
	var last Progress
	calls := 0
	rep, err := Run(t.Context(), s, items(t, 3, 6),
		Options{Limit: 5, Failures: 2, OnItem: func(p Progress) { last = p; calls++ }})
	if err != nil {
		t.Fatal(err)
	}
	zero, one, all := &rep.Tasks[0], &rep.Tasks[1], &rep.Total
	if zero.Items != 3 || zero.Exact != 2 || zero.Errors != 1 || zero.PromptTokens != 20 || zero.CachedTokens != 4 ||
		zero.CompletionTokens != 6 {
		t.Errorf("task0: %+v", zero)
	}
	if one.Items != 5 || one.Exact != 3 || one.Final != 5 || one.Errors != 0 {
		t.Errorf("task1: %+v", one)
	}
	if all.Items != 8 || all.Exact != 5 || all.Errors != 1 || all.Accuracy() != 5.0/8 || zero.Seconds <= 0 ||
		one.Seconds <= 0 || all.Seconds != zero.Seconds+one.Seconds || all.TokensPerSecond <= 0 {
		t.Errorf("all: %+v", all)
	}
	if calls != 8 || last != (Progress{Task: "task1", Done: 8, Items: 8, Exact: 5, Wrong: 3}) {
		t.Errorf("%d calls, the last with %+v", calls, last)
	}
	want := []Failure{{Task: "task0", Line: 2, Want: "answer 1 of 0", Error: "no power"},
		{Task: "task1", Line: 2, Want: "answer 1 of 1", Got: "answer 1 of 1!"}}
	if len(rep.Failures) != 2 || rep.Failures[0] != want[0] || rep.Failures[1] != want[1] {
		t.Errorf("failures %+v", rep.Failures)
	}
	var text bytes.Buffer
	if err := rep.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"scripted", "task1      5     60.0    100.0", "no power", `got  "answer 1 of 1!"`,
		"wrong: 3 of 8 items; the first 2:\n"} {
		if !strings.Contains(text.String(), s) {
			t.Errorf("%q is not in\n%s", s, text.String())
		}
	}
	if got := listed(3, 8, 3); got != "3 of 8 items:" {
		t.Errorf("all wrong items are listed as %q", got)
	}
}

func TestRunKeepsToItsConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{answer: func(_ context.Context, it *Item, _ int) (Reply, error) {
			time.Sleep(time.Second) // ends when all items that may run concurrently are running
			return right(it), nil
		}}
		if _, err := Run(t.Context(), s, items(t, 20), Options{Concurrency: 3}); err != nil {
			t.Fatal(err)
		}
		if s.most.Load() != 3 {
			t.Errorf("%d items at once, want 3", s.most.Load())
		}
	})
}

func TestRunStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int32
	s := &scripted{answer: func(ctx context.Context, _ *Item, _ int) (Reply, error) {
		if asked.Add(1) == 2 {
			cancel()
		}
		<-ctx.Done()
		return Reply{}, ctx.Err()
	}}
	rep, err := Run(ctx, s, items(t, 50, 50), Options{Concurrency: 2})
	if !errors.Is(err, context.Canceled) || rep != nil || asked.Load() != 2 {
		t.Errorf("%v, %v after %d items", rep, err, asked.Load())
	}
}

func TestRunRefusesNegativeOptions(t *testing.T) {
	_, err := Run(t.Context(), &scripted{}, nil, Options{Concurrency: -1, Limit: -2, MaxTokens: -3, Failures: -4})
	for _, s := range []string{"Concurrency is -1", "Limit is -2", "MaxTokens is -3", "Failures is -4"} {
		if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), s) {
			t.Errorf("%v does not say %q", err, s)
		}
	}
}

func TestCompare(t *testing.T) {
	tasks := items(t, 4)
	cut := func(it *Item) bool { return false } // items whose answers do not end
	run := func(name string, wrong ...int) *Report {
		rep, err := Run(t.Context(), &scripted{answer: func(_ context.Context, it *Item, _ int) (Reply, error) {
			r := right(it)
			r.Ended = !cut(it)
			for _, w := range wrong {
				if it.Line == w {
					r.Text = "wrong"
				}
				if it.Line == -w {
					return r, errors.New("no power")
				}
			}
			return r, nil
		}}, tasks, Options{})
		if err != nil {
			t.Fatal(err)
		}
		rep.Plan = name
		return rep
	}
	c, err := Compare([]*Report{run("plain"), run("half", 1, 2), run("more", 2, 3), run("down", -1)}, 2)
	if err != nil {
		t.Fatal(err)
	}
	// Runners half and more give the same wrong answer to item 2, and both are right on item 4.
	want := [][]float64{{1, 0.5, 0.5, 0.75}, {0.5, 1, 0.5, 0.5}, {0.5, 0.5, 1, 0.25}, {0.75, 0.5, 0.25, 1}}
	for i := range want {
		for j := range want[i] {
			if c.Agreement[i][j] != want[i][j] {
				t.Errorf("agreement of %s and %s is %v, want %v", c.Reports[i].Plan, c.Reports[j].Plan,
					c.Agreement[i][j], want[i][j])
			}
		}
	}
	if c.Different != 3 || len(c.Differences) != 2 || c.Differences[1].Line != 2 ||
		!slices.Equal(c.Differences[0].Got, []string{"answer 0 of 0", "wrong", "answer 0 of 0", "no power"}) {
		t.Errorf("%d differences, the first are %+v", c.Different, c.Differences)
	}
	var text bytes.Buffer
	if err := c.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"outputs differ: 3 of 4 items; the first 2:\n", "task0:2", `more   "wrong"`,
		"task0        4  100.0  50.0  50.0  75.0", "down    75.0   50.0   25.0  100.0"} {
		if !strings.Contains(text.String(), s) {
			t.Errorf("%q is not in\n%s", s, text.String())
		}
	}
	cut = func(it *Item) bool { return it.Line == 3 }
	long := run("long", 1)
	if c, err := Compare([]*Report{c.Reports[1], long, run("long too", 1)}, 0); err != nil ||
		c.Agreement[0][1] != 0.5 || c.Agreement[1][2] != 1 || c.Different != 2 {
		t.Errorf("an answer that ends and the same text without an end agree: %+v, error %v", c, err)
	}
	other, err := Run(t.Context(),
		&scripted{answer: func(_ context.Context, it *Item, _ int) (Reply, error) { return right(it), nil }},
		items(t, 4), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, reports := range [][]*Report{{c.Reports[0], other}, {c.Reports[0], {}}} {
		if _, err := Compare(reports, 2); !errors.Is(err, ErrItems) {
			t.Errorf("reports over different items: %v", err)
		}
	}
}
