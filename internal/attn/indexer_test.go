package attn

import (
	"slices"
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/ref"
	"sparrow/layout"
	"sparrow/plan"
)

// counted is a device that counts the products and scores of a selection.
type counted struct {
	kernel.Device
	products, scores int
}

func (c *counted) Do(op kernel.Op) error {
	switch op.(type) {
	case kernel.MultiplyArgs:
		c.products++
	case kernel.ScoreArgs:
		c.scores++
	}
	return c.Device.Do(op)
}

// values returns a tensor of distinct numbers around zero.
func values(t *testing.T, dev kernel.Device, rows, cols int) kernel.Tensor {
	t.Helper()
	out, err := kernel.New(dev, kernel.F32, rows, cols)
	v := make([]float32, rows*cols)
	for i := range v {
		v[i] = float32(i*37%101-50) / 50
	}
	if err == nil {
		err = kernel.WriteF32(dev, out, v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func ints(t *testing.T, dev kernel.Device, rows, cols int, v ...int32) kernel.Tensor {
	t.Helper()
	out, err := kernel.New(dev, kernel.I32, rows, cols)
	if err == nil {
		err = kernel.WriteI32(dev, out, v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A launch whose rows select all of their keys computes neither queries nor scores. With one additional key in one row
// it computes both, and the selections of rows that select every key do not change. The plan determines the kind of a
// launch: a short variant of the paged path, or a separate path for prompt rows.
func TestNothingIsScoredWhereEverythingIsKept(t *testing.T) {
	dev := &counted{Device: &ref.Device{}}
	x := Indexer{Heads: 4, TopK: 4, Pairing: kernel.HalfSplit}
	matrix := func(out, in int) kernel.Matrix {
		m, err := dev.Prepare(kernel.Weight{Data: values(t, dev, out, in)}, kernel.Projected)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	mem, err := kernel.New(dev, kernel.U8, 10, layout.IndexFP8{}.PageBytes(4))
	if err != nil {
		t.Fatal(err)
	}
	cache := kernel.Pool{Mem: mem, Layout: layout.IndexPage132, PageTokens: 4}
	const hidden = 8
	wq, ww := matrix(512, 8), matrix(4, hidden)
	paged := plan.Indexer{Kind: plan.IndexerPagedSplit, NextN: 1, RowsPerChunk: 2, ScoreWidth: 8}
	ragged := plan.Indexer{Kind: plan.IndexerRagged, RowsPerChunk: 2, ScoreWidth: 5}
	for _, c := range []struct {
		name    string
		longest int32
		segment plan.Segment
	}{
		{"paged, short", 4, plan.Segment{Indexer: paged, Variant: plan.VariantShort}},
		{"paged", 5, plan.Segment{Indexer: paged}},
		{"prompt, short", 4, plan.Segment{Indexer: plan.Indexer{Kind: plan.IndexerKOnlyWithIndices}}},
		{"prompt", 5, plan.Segment{Indexer: ragged}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.segment.NeedIndices = true
			arena, err := kernel.NewArena(dev, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			space, err := x.Arrange(arena, &plan.Plan{}, &c.segment, &plan.Launch{Rows: 2, Index: plan.Run{Count: 5}},
				cache.Layout, kernel.F32)
			if err != nil || !arena.Fits() {
				t.Fatal(err, arena.High())
			}
			if c.longest == 4 && arena.High() != 0 {
				t.Errorf("a launch that scores nothing takes %d bytes", arena.High())
			}
			if n := space.keys.PageTokens; n%4 != 0 || c.name == "prompt" && n < 5 {
				t.Errorf("space for %d gathered keys, want 5 or more and a multiple of four", n)
			}
			out := ints(t, dev, 2, 4, make([]int32, 8)...)
			dev.products, dev.scores = 0, 0
			list := kernel.NewBuilder(dev, kernel.Member{})
			x.Select(list, &Selection{Plan: &c.segment, Space: &space, Last: 2, Q: wq, W: ww,
				Latent: values(t, dev, 2, 8), Hidden: values(t, dev, 2, hidden), Angles: values(t, dev, 2, 64),
				Out:   out,
				Lens:  ints(t, dev, 2, 1, 3, c.longest),
				Cache: cache, Table: ints(t, dev, 1, 2, 0, 1), Request: ints(t, dev, 2, 1, 0, 0),
				Gather: ints(t, dev, 5, 1, 0, 1, 2, 3, 4), Start: ints(t, dev, 2, 1, 0, 0)})
			if err := list.Run(); err != nil {
				t.Fatal(err)
			}
			products, scores := 2, 1
			if c.longest == 4 {
				products, scores = 0, 0
			}
			if dev.products != products || dev.scores != scores {
				t.Errorf("%d keys: %d products and %d scores, want %d and %d", c.longest, dev.products, dev.scores,
					products, scores)
			}
			got := make([]int32, 8)
			if err := kernel.ReadI32(dev, got, out); err != nil {
				t.Fatal(err)
			}
			if want := []int32{0, 1, 2, -1}; !slices.Equal(got[:4], want) {
				t.Errorf("the row that keeps all: got %v, want %v", got[:4], want)
			}
			if want := []int32{0, 1, 2, 3}; c.longest == 4 && !slices.Equal(got[4:], want) {
				t.Errorf("the other row: got %v, want %v", got[4:], want)
			}
		})
	}
}
