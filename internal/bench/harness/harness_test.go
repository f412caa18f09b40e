package harness

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestFiltersMatchNameAndShape(t *testing.T) {
	cases := []Case{{Name: "topk", Shape: "2048 of 64 x 32k"}, {Name: "index_paged", Shape: "64 x 32k, next_n 1"},
		{Name: "multiply q4_k", Shape: "16 rows", Called: "gemm"}}
	for filter, want := range map[string]int{"topk": 1, "64 x 32k": 2, "topk 2048": 1, "": 3, "Q4_K": 1, "gemm": 1} {
		if got, err := Match(cases, []string{filter}); err != nil || len(got) != want {
			t.Errorf("filter %q: %d cases, %v; want %d", filter, len(got), err, want)
		}
	}
	if got, err := Match(cases, nil); err != nil || len(got) != len(cases) {
		t.Errorf("without a filter Match returned %d cases, error %v", len(got), err)
	}
	if _, err := Match(cases, []string{"attend"}); err == nil || !strings.Contains(err.Error(), "topk, index_paged") {
		t.Errorf("a filter without a match: error %v, want the list of names", err)
	}
}

// A failed case does not prevent the others from running; the end of the context ends the run.
func TestEachRunsUntilTheContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	failed, ran := errors.New("wrong result"), ""
	told := ""
	tell := func(done, total int, what string) { told += fmt.Sprintf("%d of %d, %s; ", done, total, what) }
	err := Each(ctx, []Case{{Name: "a", Shape: "s"}, {Name: "b"}, {Name: "c"}}, tell, func(c Case) error {
		if ran += c.Name; c.Name == "a" {
			return failed
		}
		cancel()
		return nil
	})
	if ran != "ab" || !errors.Is(err, failed) || !errors.Is(err, context.Canceled) {
		t.Errorf("ran the cases %s: error %v", ran, err)
	}
	if want := "0 of 3, a s; 1 of 3, b ; "; told != want {
		t.Errorf("progress %q, want %q", told, want)
	}
	if err := Each(t.Context(), []Case{{Name: "a"}}, nil, func(Case) error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestSpreadIsOfTheMiddle(t *testing.T) {
	got := Summarise([]float64{12, 10, 11, 10, 10, 10, 10, 9, 10, 10, 10})
	if got.Median != 10 || got.Min != 9 || got.Max != 12 || math.Abs(got.Spread-0.1) > 1e-9 {
		t.Errorf("times %+v, want a median of 10 between 9 and 12 with a spread of 0.1", got)
	}
}
