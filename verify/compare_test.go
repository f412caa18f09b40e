package verify

import (
	"slices"
	"strings"
	"testing"

	"sparrow/plan"
)

// matching returns a golden case of 8 positions and an outcome that agrees with it, which change may alter.
func matching(change func(*Golden, *outcome)) Case {
	row := func(i int) []float32 { return []float32{float32(i), 1, -2, float32(i * i)} }
	g := &Golden{Name: "x", Input: make([]int32, 8), LogitsFrom: 4, Hidden: [][]float32{{1, 2}, {3, 4}},
		Greedy: []int32{3, 1}, Margin: []float32{1, 1}}
	o := &outcome{greedy: []int32{3, 1}, record: newRecorded(8, 2)}
	for i := range 8 {
		o.logits = append(o.logits, row(i))
		g.Argmax = append(g.Argmax, argmax(row(i)))
		if i >= 4 {
			g.Logits = append(g.Logits, row(i))
		}
	}
	copy(o.record.hidden, [][]float32{{1, 2}, {3, 4}})
	for range 2 {
		g.Selections = append(g.Selections, [][]int32{{0, 2}, {1, 3}, {4, 5}, {2, 6}})
	}
	for layer := range 2 {
		o.record.selections[layer] = [][]int32{{0, 2}, {1, 3}, {4, 5}, {2, 6}}
	}
	change(g, o)
	return compare(g, o, 2, nil)
}

// Every value that is compared counts: an outcome that differs in one of them is refused by the rule for exact rows.
func TestEveryComparedValueCounts(t *testing.T) {
	for name, change := range map[string]func(*Golden, *outcome){
		"the first row of logits": func(_ *Golden, o *outcome) { o.logits[4] = []float32{4, 1.1, -2, 16} },
		"the last row of logits":  func(_ *Golden, o *outcome) { o.logits[7] = []float32{7, 1.1, -2, 49} },
		"logits of another size":  func(_ *Golden, o *outcome) { o.logits[5] = o.logits[5][:3] },
		"a key of the first row":  func(_ *Golden, o *outcome) { o.record.selections[0][0] = []int32{0, 1} },
		"a key of the last row":   func(_ *Golden, o *outcome) { o.record.selections[1][3] = []int32{3, 6} },
		"a key more":              func(_ *Golden, o *outcome) { o.record.selections[0][1] = []int32{1, 2, 3} },
		"a key less":              func(_ *Golden, o *outcome) { o.record.selections[0][1] = []int32{1} },
		"the most likely token":   func(g *Golden, _ *outcome) { g.Argmax[1] = 2 },
		"the last greedy token":   func(_ *Golden, o *outcome) { o.greedy[1] = 2 },
		"a layer without choices": func(_ *Golden, o *outcome) { delete(o.record.selections, 1) },
	} {
		c := matching(change)
		if judge(&c, plan.F32Row2304, plan.IndexF32Row512); len(c.Problems) == 0 {
			t.Errorf("%s differs, and nothing is said", name)
		}
	}
	c := matching(func(*Golden, *outcome) {})
	if judge(&c, plan.F32Row2304, plan.IndexF32Row512); len(c.Problems) > 0 {
		t.Errorf("equal outcomes: %q", c.Problems)
	}
	if c.Selections != 8 || c.SetsEqual != 8 || c.ArgmaxOf != 8 || c.GreedyOf != 2 || c.MaxError != 0 ||
		!slices.Equal(c.Overlap, []float64{1, 1}) {
		t.Errorf("%+v", c)
	}
}

// A case that compares no value is refused.
func TestEmptyCasesAreRefused(t *testing.T) {
	for _, main := range []plan.Layout{plan.F32Row2304, plan.BF16Row1152, plan.FP8Row656, plan.V4Row584} {
		c := matching(func(g *Golden, _ *outcome) { g.Logits = nil })
		judge(&c, main, plan.IndexF32Row512)
		if !slices.ContainsFunc(c.Problems, func(s string) bool { return strings.Contains(s, "golden file") }) {
			t.Errorf("%v: problems %q", main, c.Problems)
		}
	}
}

// A case passes if its medians are near 1 and fails if any of them is not.
func TestMediansAreJudged(t *testing.T) {
	near := func() *Case {
		return &Case{MedianCosine: 0.999, Hidden: []float64{0.999}, Overlap: []float64{0.99}, TopK: 8, Visible: 8,
			Logits: 4}
	}
	for name, c := range map[string]struct {
		change func(*Case)
		ok     bool
	}{
		"near":                 {func(*Case) {}, true},
		"logits at 0.1":        {func(c *Case) { c.MedianCosine = 0.1 }, false},
		"logits below":         {func(c *Case) { c.MedianCosine = 0.92 }, false},
		"logits turned around": {func(c *Case) { c.MedianCosine = -0.999 }, false},
		"the first layer":      {func(c *Case) { c.Hidden[0] = 0.98 }, false},
		"no layer":             {func(c *Case) { c.Hidden = nil }, false},
		"selections":           {func(c *Case) { c.Overlap[0] = 0.9 }, false},
		"a greedy token":       {func(c *Case) { c.GreedyOf, c.GreedyMargin, c.MaxError = 1, 2, 1 }, false},
		"a greedy token at a small margin": {
			func(c *Case) { c.GreedyOf, c.GreedyMargin, c.MaxError = 1, 1, 2 }, true},
	} {
		for _, main := range []plan.Layout{plan.BF16Row1152, plan.FP8Row656} {
			x := near()
			c.change(x)
			if judge(x, main, plan.IndexF32Row512); (len(x.Problems) == 0) != c.ok {
				t.Errorf("%s, %v: problems %q", name, main, x.Problems)
			}
		}
	}
}
