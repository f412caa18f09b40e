package attn

import (
	"testing"

	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// counted counts what selecting costs.
type counted struct {
	kernel.Device
	products, scores int
}

func (c *counted) Multiply(a kernel.MultiplyArgs) error {
	c.products++
	return c.Device.Multiply(a)
}

func (c *counted) Scores(a kernel.ScoreArgs) error {
	c.scores++
	return c.Device.Scores(a)
}

// A launch whose rows keep every key they see computes neither queries nor scores; one more key of one row needs both, and the rows
// that keep everything get the same.
func TestNothingIsScoredWhereEverythingIsKept(t *testing.T) {
	r := newRig(t)
	dev := &counted{Device: r.dev}
	x := NewIndexer(dev, Indexer{Heads: 4, TopK: 4, Pairing: kernel.HalfSplit})
	cache := r.cache(layout.FP8Row656, layout.IndexPage132).Index
	ids := func(rows, cols int, v ...int32) kernel.Tensor {
		out, err := kernel.New(r.dev, kernel.I32, rows, cols)
		if err == nil {
			err = kernel.WriteI32(r.dev, out, v)
		}
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, kind := range []plan.IndexerKind{plan.IndexerPagedSplit, plan.IndexerRagged} {
		for _, longest := range []int32{4, 5} {
			*dev = counted{Device: r.dev}
			out := ids(2, 4, make([]int32, 8)...)
			err := x.Select(&Selection{Plan: plan.Indexer{Kind: kind, NextN: 1, RowsPerChunk: 2}, Last: 2, Longest: int(longest), Q: r.w.Index.Q, W: r.w.Index.Weights,
				Latent: r.values(2, 8), Hidden: r.values(2, hidden), Angles: r.values(2, 64), Out: out, Lens: ids(2, 1, 3, longest), Cache: cache,
				Table: ids(1, 2, 0, 1), Request: ids(2, 1, 0, 0), Gather: ids(5, 1, 0, 1, 2, 3, 4), Start: ids(2, 1, 0, 0)})
			if err != nil {
				t.Fatal(err)
			}
			products, scores := 2, 1
			if longest == 4 {
				products, scores = 0, 0
			}
			if dev.products != products || dev.scores != scores {
				t.Errorf("%v, %d keys: %d products and %d scores, want %d and %d", kind, longest, dev.products, dev.scores, products, scores)
			}
			got := make([]int32, 8)
			if err := kernel.ReadI32(r.dev, got, out); err != nil {
				t.Fatal(err)
			}
			ints(t, "the row that keeps all", got[:4], 0, 1, 2, -1)
			if longest == 4 {
				ints(t, "the other row", got[4:], 0, 1, 2, 3)
			}
		}
	}
}
