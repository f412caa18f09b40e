package v41_test

import (
	"testing"

	"sparrow/internal/attn/dual"
	"sparrow/internal/model/config"
	"sparrow/internal/model/v41"
	"sparrow/internal/testkit/steps"
	"sparrow/internal/testmodel"
	"sparrow/layout"
	"sparrow/plan"
)

// Every layer has a window page. Every layer that compresses adds its entries and indexer keys, and a ring of raw rows
// if an entry is made of more than one token.
func TestSizesAddUpLayers(t *testing.T) {
	const page, dim = 64, 512
	entry, index := layout.V41Entry{}, layout.IndexV41{}
	c := &config.V41{}
	c.Layers, c.Attention.Dim, c.Attention.Ratios = 5, dim, []int{0, 2, 1, 2, 2}
	of := func(sources ...int) v41.Sizes {
		c.EntrySources = sources
		return v41.SizesOf(c, entry, index, page)
	}
	pairs := int64(entry.PageBytes(page/2) + index.PageBytes(page/2))
	single, ring := int64(entry.PageBytes(page)+index.PageBytes(page)), int64(dual.RingBytes(2, dim))
	window := int64(5 * layout.V41Window{}.PageBytes(page))
	for _, x := range []struct{ got, want v41.Sizes }{
		{of(), v41.Sizes{Window: window}},
		{of(1), v41.Sizes{Page: pairs, Window: window, State: ring}},
		{of(2), v41.Sizes{Page: single, Window: window}},
		{of(1, 2, 3), v41.Sizes{Page: 2*pairs + single, Window: window, State: 2 * ring}},
	} {
		if x.got != x.want {
			t.Errorf("%+v, want %+v", x.got, x.want)
		}
	}
}

// The cache and the states have the computed sizes, with and without drafting stages.
func TestMemoryIsAsComputed(t *testing.T) {
	steps.Memory[*v41.Model](t, testmodel.V41(t), plan.Policy{KV: "f32"}, 0)
	steps.Memory[*v41.Model](t, testmodel.V41Spark(t), plan.Policy{KV: "fp8"}, 6)
}
