package verify

import (
	"math"
	"slices"
)

// Case is the comparison of one case with the oracle.
type Case struct {
	Name   string `json:"name"`
	Tokens int    `json:"tokens"`
	Logits int    `json:"logits"` // compared rows

	MaxError     float64 `json:"max_error"`     // largest logit difference
	MedianError  float64 `json:"median_error"`  // median over positions of the largest logit difference
	MedianCosine float64 `json:"median_cosine"` // median over positions of the cosine of logits
	LogitNoise   float64 `json:"logit_noise"`   // relative L2 error of logits over all positions (see noise)

	Hidden       []float64 `json:"hidden_cosine"`     // cosine of the hidden state at the last position, for each layer
	Overlap      []float64 `json:"selection_overlap"` // mean share of the oracle's keys, for each indexer call
	Visible      int       `json:"visible_keys"`      // keys the indexer chooses from at the last position
	TopK         int       `json:"selected_keys"`     // maximum keys of a selection
	Selections   int       `json:"selections"`        // compared rows of selections
	SetsEqual    int       `json:"selections_equal"`
	ArgmaxEqual  int       `json:"argmax_equal"`
	ArgmaxOf     int       `json:"argmax_of"`
	GreedyEqual  int       `json:"greedy_equal"` // leading tokens that agree
	GreedyOf     int       `json:"greedy_of"`
	GreedyMargin float64   `json:"greedy_margin,omitempty"` // oracle's margin at the first token that differs
	Reference    *Against  `json:"reference,omitempty"`
	Blocks       *Blocks   `json:"blocks,omitempty"`   // comparison of drafts; nil if the oracle or the model has none
	Replayed     int       `json:"replayed,omitempty"` // rows that were run again with their choices
	Rule         string    `json:"rule"`               // rule of the verdict
	Problems     []string  `json:"problems,omitempty"`

	checked column // columns of the table on which the rule depends
}

// column is a set of columns of the report's table.
type column uint

const (
	maxErrorColumn column = 1 << iota
	medianErrorColumn
	cosineColumn
	hiddenColumn
	setsColumn
	overlapColumn
	argmaxColumn
	greedyColumn
)

// selective reports whether the prompt is longer than a selection, so that some keys are not selected.
func (c *Case) selective() bool { return c.TopK > 0 && c.Visible > c.TopK }

// compare compares an outcome with the golden one. A selection has at most topK keys; in each selecting layer there
// is one key for every ratios[layer] tokens.
func compare(g *Golden, o *outcome, topK int, ratios []int) Case {
	ratio := 1
	if len(ratios) > 0 {
		ratio = ratios[0]
	}
	c := Case{Name: g.Name, Tokens: len(g.Input), Visible: len(g.Input) / ratio, TopK: topK,
		Logits: len(g.Logits)}
	var errs, cosines []float64
	for i, want := range g.Logits {
		got := o.logits[g.LogitsFrom+i]
		e := maxDiff(got, want)
		c.MaxError = max(c.MaxError, e)
		errs = append(errs, e)
		cosines = append(cosines, cosine(got, want))
	}
	c.MedianError, c.MedianCosine, c.LogitNoise = median(errs), median(cosines), noise(cosines)
	for l, want := range g.Hidden {
		c.Hidden = append(c.Hidden, cosine(o.record.hidden[l], want))
	}
	for i, want := range g.Argmax {
		c.ArgmaxOf++
		if argmax(o.logits[i]) == want {
			c.ArgmaxEqual++
		}
	}
	compareSelections(&c, g, o, ratios)
	c.GreedyOf = len(g.Greedy)
	for c.GreedyEqual < len(g.Greedy) && o.greedy[c.GreedyEqual] == g.Greedy[c.GreedyEqual] {
		c.GreedyEqual++
	}
	if c.GreedyEqual < len(g.Margin) {
		c.GreedyMargin = float64(g.Margin[c.GreedyEqual])
	}
	return c
}

// compareSelections compares the selections of rows as sets. Rows in the dense form have no selection because they
// attend to every key; the golden selection must then contain every key, too.
func compareSelections(c *Case, g *Golden, o *outcome, ratios []int) {
	n := len(g.Input)
	layers := make([]int, 0, len(o.record.selections))
	for l := range o.record.selections {
		layers = append(layers, l)
	}
	slices.Sort(layers)
	for call, rows := range g.Selections {
		sum, ratio := 0.0, 1
		if call < len(ratios) {
			ratio = ratios[call]
		}
		for i, row := range rows {
			visible := int32((n - tail + i + 1) / ratio)
			want := slices.Clone(row)
			want = slices.DeleteFunc(want, func(p int32) bool { return p >= visible || p < 0 })
			slices.Sort(want)
			got := everything(visible)
			if call < len(layers) && o.record.selections[layers[call]][i] != nil {
				got = o.record.selections[layers[call]][i]
			}
			c.Selections++
			if slices.Equal(got, want) {
				c.SetsEqual++
			}
			sum += overlap(got, want)
		}
		c.Overlap = append(c.Overlap, sum/float64(len(rows)))
	}
}

func everything(visible int32) []int32 {
	out := make([]int32, visible)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// overlap returns the share of want that is in got; both are ascending.
func overlap(got, want []int32) float64 {
	if len(want) == 0 {
		return 1
	}
	n := 0
	for _, p := range want {
		if _, ok := slices.BinarySearch(got, p); ok {
			n++
		}
	}
	return float64(n) / float64(len(want))
}

func maxDiff(a, b []float32) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	var m float64
	for i := range a {
		d := math.Abs(float64(a[i]) - float64(b[i]))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		m = max(m, d)
	}
	return m
}

func cosine(a, b []float32) float64 {
	if len(a) != len(b) {
		return 0
	}
	var ab, aa, bb float64
	for i := range a {
		ab += float64(a[i]) * float64(b[i])
		aa += float64(a[i]) * float64(a[i])
		bb += float64(b[i]) * float64(b[i])
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}

// noise returns the relative L2 error of pairs of vectors with the given cosines: the root mean square over pairs of
// |a - b| / |a|. For vectors of about equal size, |a - b|^2 = 2 |a|^2 (1 - cos).
func noise(cosines []float64) float64 {
	if len(cosines) == 0 {
		return 0
	}
	sum := 0.0
	for _, c := range cosines {
		sum += 2 * (1 - c)
	}
	return math.Sqrt(max(sum, 0) / float64(len(cosines)))
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Clone(v)
	slices.Sort(s)
	return s[len(s)/2]
}
