package verify

import (
	"math"
	"strings"
	"testing"

	"sparrow/kernel"
)

func TestSelectionMargin(t *testing.T) {
	scores := []float32{5, 4, 3, 2.5, 1}
	for _, c := range []struct {
		name       string
		own, other []int32
		want       float64
	}{
		{"the same", []int32{0, 1, 2}, []int32{0, 1, 2}, 0},
		{"the last for the next", []int32{0, 1, 2}, []int32{0, 1, 3}, 0.5},
		{"the best for the next", []int32{0, 1, 2}, []int32{1, 2, 3}, 2},
		{"the last for the worst", []int32{0, 1, 2}, []int32{0, 1, 4}, 2},
		{"a key that is not there", []int32{0, 1, 2}, []int32{0, 1, 5}, math.Inf(1)},
		{"too few", []int32{0, 1, 2}, []int32{0, 1, -1}, math.Inf(1)},
	} {
		if got := selectionMargin(scores, c.own, c.other); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestExpertMargin(t *testing.T) {
	// The four groups of two experts have ranks 1.5, 1.25, 1 and 0.5: the first two groups are kept, and experts 0 and
	// 2 are chosen from them.
	biased := []float64{1, 0.5, 0.875, 0.375, 0.75, 0.25, 0.25, 0.25}
	args := &kernel.RouteArgs{Groups: 4, KeepGroups: 2}
	for _, c := range []struct {
		name  string
		other []int32
		want  float64
	}{
		{"the best", []int32{0, 2}, 0},
		// The choice needs groups 0 and 2, whose ranks are 0.25 apart; expert 1 is 0.25 below expert 4.
		{"the second of a group for the first of another", []int32{0, 1}, 0.25},
		{"a group for the next", []int32{0, 4}, 0.125},
		// The choice needs groups 1 and 2, which are 0.5 apart from group 0; expert 3 is 0.375 below expert 4.
		{"two experts of one group", []int32{2, 3}, 0.375},
		{"no such expert", []int32{0, 8}, math.Inf(1)},
	} {
		if got := expertMargin(biased, args, c.other); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A reference that needs a choice which the other run did not make, or one of another size, returns an error.
func TestChoicesThatWereNotMade(t *testing.T) {
	list := []choice{{ids: []int32{1, 2}}, {ids: []int32{3, 4}}}
	at, two := 0, kernel.Tensor{Rows: 1, Cols: 2}
	for i := range list {
		if c, err := next(list, &at, two); err != nil || c.ids[0] != list[i].ids[0] || at != i+1 {
			t.Fatalf("choice %d: %v, %v, then %d", i, c, err, at)
		}
	}
	if _, err := next(list, &at, two); err == nil || at != 2 {
		t.Errorf("a third choice: %v, then %d", err, at)
	}
	at = 0
	if _, err := next(list, &at, kernel.Tensor{Rows: 2, Cols: 2}); err == nil || at != 0 {
		t.Errorf("a choice of another size: %v, then %d", err, at)
	}
}

// Golden drafts of a checkpoint without a drafting head are refused.
func TestDraftsWithoutAHead(t *testing.T) {
	for _, name := range []string{"deepseek_v4-1", "deepseek_v32-1"} {
		if _, err := readMarkov("../testdata/oracle/" + name); err == nil ||
			!strings.Contains(err.Error(), "but config.json does not describe one") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
