// Package usage counts how often rows chose each expert of each layer.
//
// It adds up the counts of a device (Table.Add), reads and writes them as files (docs/format/usage.md), and computes
// the fractions of choices by which experts are placed, and which `sparrow inspect --usage` prints.
package usage

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"sparrow/internal/model/config"
)

// Table counts how often rows chose each expert. Layers are numbered as in the checkpoint: drafting layers follow the
// main layers.
type Table struct {
	Family  string
	Experts int        // experts of a layer that has experts
	Chosen  int        // experts that a row uses in each such layer
	Counts  [][]uint64 // by layer and expert; empty for layers without experts
}

// New returns a table without counts.
func New(family string, layers, experts, chosen int) *Table {
	return &Table{Family: family, Experts: experts, Chosen: chosen, Counts: make([][]uint64, layers)}
}

// For returns a table without counts for a model.
func For(d config.Description) (*Table, error) {
	c := d.Common()
	experts, chosen := 0, 0
	switch d := d.(type) {
	case *config.DSA:
		experts, chosen = d.FFN.Experts, d.FFN.TopK
	case *config.V4:
		experts, chosen = d.FFN.Experts, d.FFN.TopK
	case *config.Next:
		experts, chosen = d.FFN.Experts, d.FFN.TopK
	case *config.V41:
		experts, chosen = d.FFN.Experts, d.FFN.TopK
	}
	if experts == 0 {
		return nil, fmt.Errorf("usage: a model of family %s has no experts to count", c.Family)
	}
	return New(string(c.Family), c.Layers+c.NextN, experts, chosen), nil
}

// Add adds the counts of a layer's experts. A count that would overflow is set to the maximum.
func (t *Table) Add(layer int, counts []uint64) {
	if t.Counts[layer] == nil {
		t.Counts[layer] = make([]uint64, t.Experts)
	}
	for e, n := range counts {
		to := &t.Counts[layer][e]
		*to += min(n, math.MaxUint64-*to)
	}
}

// Merge adds the counts of another table of the same shape.
func (t *Table) Merge(o *Table) error {
	if err := o.Fits(t.Family, len(t.Counts), t.Experts, t.Chosen); err != nil {
		return err
	}
	for l, counts := range o.Counts {
		if len(counts) > 0 {
			t.Add(l, counts)
		}
	}
	return nil
}

// Fade halves the counts of layers whose experts have more than the given mean number of choices, so that recent
// choices have more weight than old choices.
func (t *Table) Fade(mean float64) {
	for l, counts := range t.Counts {
		if t.Choices(l) <= mean*float64(t.Experts) {
			continue
		}
		for e := range counts {
			counts[e] /= 2
		}
	}
}

// Clone returns a copy.
func (t *Table) Clone() *Table {
	c := *t
	c.Counts = make([][]uint64, len(t.Counts))
	for l := range t.Counts {
		c.Counts[l] = slices.Clone(t.Counts[l])
	}
	return &c
}

// Fits returns an error if the table is of another model.
func (t *Table) Fits(family string, layers, experts, chosen int) error {
	if t.Family == family && len(t.Counts) == layers && t.Experts == experts && t.Chosen == chosen {
		return nil
	}
	return fmt.Errorf("usage: the file has counts of %s with %d layers and %d of %d experts chosen, but the model is "+
		"%s with %d layers "+
		"and %d of %d; give the usage file that was saved for this model", t.Family, len(t.Counts), t.Chosen, t.Experts,
		family, layers, chosen, experts)
}

// Choices returns the number of choices that were counted in a layer.
func (t *Table) Choices(layer int) float64 {
	sum := 0.0
	for _, n := range t.Counts[layer] {
		sum += float64(n)
	}
	return sum
}

// Share returns the estimated fraction of rows that choose an expert. It adds one to every count, so that the estimate
// is above 0 for experts that were not chosen so far.
func (t *Table) Share(layer, expert int) float64 {
	n := 0.0
	if len(t.Counts[layer]) > 0 {
		n = float64(t.Counts[layer][expert])
	}
	return min(float64(t.Chosen)*(n+1)/(t.Choices(layer)+float64(t.Experts)), 1)
}

// Top returns the fraction of a layer's choices that are of its n most chosen experts.
func (t *Table) Top(layer, n int) float64 {
	sum := t.Choices(layer)
	if sum == 0 {
		return 0
	}
	counts := slices.Clone(t.Counts[layer])
	slices.SortFunc(counts, func(a, b uint64) int { return cmp.Compare(b, a) })
	top := 0.0
	for _, c := range counts[:min(n, len(counts))] {
		top += float64(c)
	}
	return top / sum
}

// MeanTop returns the fraction of choices that are of a layer's most chosen experts, averaged over layers with choices;
// 0 if nothing was counted. share is the fraction of a layer's experts that are called most chosen.
func (t *Table) MeanTop(share float64) float64 {
	n := int(math.Ceil(share * float64(t.Experts)))
	sum, layers := 0.0, 0
	for l := range t.Counts {
		if t.Choices(l) > 0 {
			sum += t.Top(l, n)
			layers++
		}
	}
	if layers == 0 {
		return 0
	}
	return sum / float64(layers)
}

// Total returns the number of choices of all layers.
func (t *Table) Total() float64 {
	sum := 0.0
	for l := range t.Counts {
		sum += t.Choices(l)
	}
	return sum
}

// Print writes, for each layer, how evenly experts are chosen and which experts are chosen most.
func (t *Table) Print(w io.Writer) error {
	fmt.Fprintf(w, "%s: %d layers, %d of %d experts chosen by a row; %.0f choices counted\n\n", t.Family, len(t.Counts),
		t.Chosen, t.Experts, t.Total())
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "layer\tchoices\tnever chosen\ttop 10 %\ttop 25 %\ttop 50 %\tmost chosen\t")
	for l, counts := range t.Counts {
		if len(counts) == 0 {
			continue
		}
		top := func(share float64) float64 { return 100 * t.Top(l, int(math.Ceil(share*float64(t.Experts)))) }
		fmt.Fprintf(out, "%d\t%.0f\t%d\t%.1f %%\t%.1f %%\t%.1f %%\t%s\t\n", l, t.Choices(l), count(counts, 0), top(0.1),
			top(0.25), top(0.5), most(counts))
	}
	return out.Flush()
}

// most lists the three experts with the highest counts.
func most(counts []uint64) string {
	order := make([]int, len(counts))
	for e := range order {
		order[e] = e
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(counts[b], counts[a]) })
	text := ""
	for _, e := range order[:min(3, len(order))] {
		text += fmt.Sprintf(" %d", e)
	}
	return text
}

func count(list []uint64, v uint64) (n int) {
	for _, x := range list {
		if x == v {
			n++
		}
	}
	return n
}
