package kernel_test

import (
	"errors"
	"slices"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/kernel"
)

// stored returns a tensor of zeros in host memory.
func stored(d kernel.DType, rows, cols int) kernel.Tensor {
	return kernel.Tensor{Buf: make(kernel.HostBuffer, rows*cols*d.Size()), DType: d, Rows: rows, Cols: cols,
		Stride: cols}
}

// A weight with scales is accepted if the scales have a type that its own type allows and the shape that follows from
// its blocks, zero points have that shape, and a factor is given only for formats with one. Anything else is refused.
func TestFormatsOfWeights(t *testing.T) {
	const out, in = 6, 128
	groups := func(d, scale kernel.DType, cols int) kernel.Weight {
		return kernel.Weight{Data: stored(d, out, in/d.Values()), Scale: stored(scale, out, in/cols), BlockRows: 1,
			BlockCols: cols, Factor: 2}
	}
	blocks := func(scale kernel.DType) kernel.Weight {
		return kernel.Weight{Data: stored(kernel.E4M3, out, in), Scale: stored(scale, 2, 2), BlockRows: 4,
			BlockCols: 64}
	}
	scales := []kernel.DType{kernel.F32, kernel.BF16, kernel.F16, kernel.E4M3, kernel.E8M0, kernel.I32}
	for _, c := range []struct {
		data  kernel.DType
		with  []kernel.DType // accepted types of scales
		zeros bool           // zero points are accepted
	}{
		{kernel.E4M3, []kernel.DType{kernel.F32}, false},
		{kernel.E2M1x2, []kernel.DType{kernel.E8M0, kernel.E4M3}, false},
		{kernel.U4x2, []kernel.DType{kernel.F32, kernel.BF16, kernel.F16}, true},
		{kernel.U8, []kernel.DType{kernel.F32, kernel.BF16, kernel.F16}, true},
		{kernel.I8, []kernel.DType{kernel.F32, kernel.BF16, kernel.F16}, true},
	} {
		check := func(name string, ok bool, change func(w *kernel.Weight)) {
			t.Helper()
			w := groups(c.data, c.with[0], 32)
			if c.data == kernel.E4M3 {
				w = blocks(c.with[0])
			}
			change(&w)
			err := w.Check(kernel.Projected)
			if (err == nil) != ok || err != nil && !errors.Is(err, kernel.ErrArgument) {
				t.Errorf("%v, %s: error %v", c.data, name, err)
			}
		}
		check("as it is", true, func(*kernel.Weight) {})
		for _, s := range scales {
			check("scales of "+s.String(), slices.Contains(c.with, s), func(w *kernel.Weight) {
				w.Scale = stored(s, w.Scale.Rows, w.Scale.Cols)
			})
		}
		check("no scales", false, func(w *kernel.Weight) { w.Scale = kernel.Tensor{} })
		check("a row of scales too few", false, func(w *kernel.Weight) { w.Scale.Rows-- })
		check("a column of scales too few", false, func(w *kernel.Weight) { w.Scale.Cols-- })
		check("no rows in a block", false, func(w *kernel.Weight) { w.BlockRows = 0 })
		check("no columns in a block", false, func(w *kernel.Weight) { w.BlockCols = 0 })
		check("negative blocks", false, func(w *kernel.Weight) { w.BlockRows, w.BlockCols = -1, -1 })
		if c.zeros {
			zeros := func(d kernel.DType, rows, cols int) func(*kernel.Weight) {
				return func(w *kernel.Weight) { w.Zero = stored(d, rows, cols) }
			}
			check("zero points", true, zeros(kernel.U8, out, in/32))
			check("zero points of another type", false, zeros(kernel.I8, out, in/32))
			check("zero points of fewer rows", false, zeros(kernel.U8, out-1, in/32))
			check("zero points of fewer groups", false, zeros(kernel.U8, out, in/32-1))
		}
		if c.data != kernel.E4M3 {
			check("groups of two rows", false, func(w *kernel.Weight) { w.BlockRows = 2 })
			check("a row too many", false, func(w *kernel.Weight) { w.Data.Rows++ })
			odd := groups(c.data, c.with[0], 32)
			odd.BlockCols = 33
			odd.Scale = stored(c.with[0], out, 4)
			if err := odd.Check(kernel.Projected); (err == nil) != (c.data.Values() == 1) {
				t.Errorf("%v in groups of 33 values: error %v", c.data, err)
			}
		}
	}
	skipped := blocks(kernel.F32)
	skipped.SkipRows = 2 // the rows begin inside a block
	if err := skipped.Check(kernel.Projected); err != nil {
		t.Errorf("6 rows after 2 rows of their first block: %v", err)
	}
	skipped.SkipRows = 3
	if skipped.Check(kernel.Projected) == nil {
		t.Error("6 rows after 3 rows of their first block have scales of two blocks")
	}
	for factor, ok := range map[float32]bool{2: true, 0: false, -1: false} {
		w := groups(kernel.E2M1x2, kernel.E4M3, 16)
		if w.Factor = factor; (w.Check(kernel.Projected) == nil) != ok {
			t.Errorf("factor %v: error %v", factor, w.Check(kernel.Projected))
		}
	}
	plain := kernel.Weight{Data: stored(kernel.BF16, out, in)}
	for role, ok := range map[kernel.Role]bool{kernel.Projected: true, kernel.LookedUp: true, kernel.Tied: true,
		kernel.Latent: true, kernel.Projected - 1: false, kernel.Tied + 1: false} {
		if err := plain.Check(role); (err == nil) != ok {
			t.Errorf("%v: error %v", role, err)
		}
	}
	plain.Scale = stored(kernel.F32, 1, 1)
	if plain.Check(kernel.Projected) == nil {
		t.Error("a weight of bf16 has scales")
	}
	for _, role := range []kernel.Role{kernel.LookedUp, kernel.Tied} {
		if blocks(kernel.F32).Check(role) == nil {
			t.Errorf("rows with scales are a %v", role)
		}
	}
	if (kernel.Weight{Data: stored(kernel.I32, out, in)}).Check(kernel.Projected) == nil {
		t.Error("a weight of i32 is accepted")
	}
}

// Collective operations refuse tensors that do not fit the number of ranks.
func TestCollectivesAreChecked(t *testing.T) {
	x := stored
	gather := func(d kernel.DType, rows, cols int) kernel.AllGatherArgs {
		return kernel.AllGatherArgs{Out: x(d, rows, cols), X: x(kernel.I32, 3, 4)}
	}
	scatter := func(d kernel.DType, rows, cols int) kernel.ReduceScatterArgs {
		return kernel.ReduceScatterArgs{Out: x(d, 3, 4), X: x(d, rows, cols)}
	}
	for _, c := range []struct {
		name string
		err  error
		ok   bool
	}{
		{"all-reduce", kernel.AllReduceArgs{X: x(kernel.F32, 3, 4)}.Check(), true},
		{"all-reduce of gaps", kernel.AllReduceArgs{X: x(kernel.F32, 3, 4).Columns(0, 2)}.Check(), false},
		{"all-reduce of one row", kernel.AllReduceArgs{X: x(kernel.F32, 1, 4).Columns(0, 2)}.Check(), true},
		{"all-reduce of i32", kernel.AllReduceArgs{X: x(kernel.I32, 3, 4)}.Check(), false},
		{"all-gather", gather(kernel.I32, 3, 8).Check(), true},
		{"all-gather of half a rank", gather(kernel.I32, 3, 6).Check(), false},
		{"all-gather on two ranks", gather(kernel.I32, 3, 8).Fits(2), true},
		{"all-gather on three", gather(kernel.I32, 3, 8).Fits(3), false},
		{"all-gather of fewer rows", gather(kernel.I32, 2, 8).Fits(2), false},
		{"all-gather of another type", gather(kernel.F32, 3, 8).Fits(2), false},
		{"reduce-scatter", scatter(kernel.F32, 3, 8).Fits(2), true},
		{"reduce-scatter on three", scatter(kernel.F32, 3, 8).Fits(3), false},
		{"reduce-scatter of i32", scatter(kernel.I32, 3, 8).Fits(2), false},
		{"reduce-scatter of fewer rows", scatter(kernel.F32, 2, 8).Fits(2), false},
		{"broadcast", kernel.BroadcastArgs{X: x(kernel.U8, 3, 4), From: 1}.Fits(2), true},
		{"broadcast from rank 2", kernel.BroadcastArgs{X: x(kernel.U8, 3, 4), From: 2}.Fits(2), false},
		{"broadcast from rank -1", kernel.BroadcastArgs{X: x(kernel.U8, 3, 4), From: -1}.Fits(2), false},
		{"share", kernel.ShareArgs{X: x(kernel.U8, 3, 4), Bounds: []int{0, 1, 3}}.Fits(2), true},
		{"share, one rank without rows", kernel.ShareArgs{X: x(kernel.U8, 3, 4), Bounds: []int{0, 3, 3}}.Check(), true},
		{"share of too few bounds", kernel.ShareArgs{X: x(kernel.U8, 3, 4), Bounds: []int{0, 3}}.Fits(2), false},
		{"share that begins later", kernel.ShareArgs{X: x(kernel.U8, 3, 4), Bounds: []int{1, 1, 3}}.Fits(2), false},
		{"share that ends early", kernel.ShareArgs{X: x(kernel.U8, 3, 4), Bounds: []int{0, 1, 2}}.Fits(2), false},
		{"share up to the columns", kernel.ShareArgs{X: x(kernel.U8, 3, 4), Bounds: []int{0, 1, 4}}.Fits(2), false},
		{"share that goes back", kernel.ShareArgs{X: x(kernel.U8, 3, 4), Bounds: []int{0, 4, 2, 3}}.Fits(3), false},
	} {
		if (c.err == nil) != c.ok || c.err != nil && !errors.Is(c.err, kernel.ErrArgument) {
			t.Errorf("%s: error %v", c.name, c.err)
		}
	}
}

// An operation that compares drafts with tokens is accepted only if the numbers of columns of its tensors match and
// rows have no gaps.
func TestComparisonsOfDraftsAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		change func(a *kernel.AcceptArgs)
		ok     bool
	}{
		"as it is": {func(*kernel.AcceptArgs) {}, true},
		"no drafts": {func(a *kernel.AcceptArgs) {
			a.Words.Cols, a.Words.Stride = 3, 3
			a.Drafts.Cols, a.Drafts.Stride = 1, 1
		}, true},
		"no words":         {func(a *kernel.AcceptArgs) { a.Words.Cols, a.Words.Stride = 2, 2 }, false},
		"drafts of more":   {func(a *kernel.AcceptArgs) { a.Drafts.Cols, a.Drafts.Stride = 6, 6 }, false},
		"gaps in drafts":   {func(a *kernel.AcceptArgs) { a.Drafts.Rows, a.Drafts.Stride = 1, 7 }, false},
		"gaps in words":    {func(a *kernel.AcceptArgs) { a.Words.Rows, a.Words.Stride = 1, 7 }, false},
		"no places":        {func(a *kernel.AcceptArgs) { a.Out = kernel.Tensor{} }, false},
		"tokens of floats": {func(a *kernel.AcceptArgs) { a.Tokens = stored(kernel.F32, 5, 1) }, false},
		"words of floats":  {func(a *kernel.AcceptArgs) { a.Words = stored(kernel.F32, 4, 5) }, false},
	} {
		a := kernel.AcceptArgs{Out: stored(kernel.I32, 1, 4), Tokens: stored(kernel.I32, 5, 1),
			Drafts: stored(kernel.I32, 2, 5), Words: stored(kernel.I32, 4, 5)}
		if c.change(&a); (a.Check() == nil) != c.ok {
			t.Errorf("%s: error %v", name, a.Check())
		}
	}
}

// The buffer has the requested number of words; memory that is large enough is reused.
func TestWordsOfABlock(t *testing.T) {
	var w kernel.Words
	var before *int32
	for _, c := range []struct {
		n     int
		again bool
	}{{8, false}, {8, true}, {3, true}, {10, true}, {11, false}, {13, true}, {14, false}} {
		got, err := w.Take(host.Memory{}, c.n)
		if err != nil || len(got) != c.n {
			t.Fatalf("%d words for %d, error %v", len(got), c.n, err)
		}
		if again := before == &got[0]; again != c.again {
			t.Errorf("%d words: the memory is used again: %t", c.n, again)
		}
		before = &got[0]
	}
	if err := w.Free(host.Memory{}); err != nil {
		t.Error(err)
	}
}
