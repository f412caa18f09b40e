package cuda

import (
	"errors"
	"strings"
	"testing"

	"sparrow/internal/cuda/image"
)

func someQuantise() QuantiseRowsArgs {
	return QuantiseRowsArgs{X: somewhere, Codes: somewhere, Scales: somewhere, XStride: 272, CodeStride: 272,
		ScaleStride: 5, Rows: 5, Columns: 272}
}

func someNorm() NormQuantiseArgs {
	return NormQuantiseArgs{X: somewhere, Weight: somewhere, Codes: somewhere, Scales: somewhere, XStride: 272,
		CodeStride: 272, ScaleStride: 5, Rows: 5, Columns: 272}
}

func TestQuantisersNameTheArgumentThatIsWrong(t *testing.T) {
	k, s := &Kernels{device: &Device{}}, &Stream{}
	rows := func(change func(*QuantiseRowsArgs)) error { return QuantiseRows(k, s, with(someQuantise(), change)) }
	norm := func(change func(*NormQuantiseArgs)) error { return NormQuantise(k, s, with(someNorm(), change)) }
	for _, c := range []struct {
		err  error
		says string // empty if the arguments are valid
	}{
		{rows(func(*QuantiseRowsArgs) {}), ""},
		{rows(func(a *QuantiseRowsArgs) { a.Columns = 24 }), "columns 24"},
		{rows(func(a *QuantiseRowsArgs) { a.Rows = -1 }), "rows -1"},
		{rows(func(a *QuantiseRowsArgs) { a.X = somewhere + 8 }), "x at 0x100008"},
		{rows(func(a *QuantiseRowsArgs) { a.CodeStride = 280 }), "code stride 280"},
		{rows(func(a *QuantiseRowsArgs) { a.ScaleStride = 4 }), "scale stride 4"},
		{rows(func(a *QuantiseRowsArgs) { a.Scales = 0 }), "scales is not given"},
		{rows(func(a *QuantiseRowsArgs) { a.Exact = 2 }), "exact is 2"},
		{rows(func(a *QuantiseRowsArgs) {
			a.Rows, a.ScaleStride, a.Columns, a.XStride, a.CodeStride = 1<<30, 1<<30, 1<<14, 1<<14, 1<<14
		}), "launch fewer rows"},
		{norm(func(*NormQuantiseArgs) {}), ""},
		{norm(func(a *NormQuantiseArgs) { a.Columns = MaxNormColumns + 16 }), "at most 16384"},
		{norm(func(a *NormQuantiseArgs) { a.Codes = 0 }), "give at least one of them"},
		{norm(func(a *NormQuantiseArgs) { a.Delta, a.DeltaStride = somewhere, 100 }), "delta stride 100"},
		{norm(func(a *NormQuantiseArgs) { a.Sum, a.SumStride = somewhere+4, 272 }), "sum at 0x100004"},
		{norm(func(a *NormQuantiseArgs) { a.Out, a.OutStride = somewhere, 0 }), "out stride 0"},
		{norm(func(a *NormQuantiseArgs) { a.Weight = 0 }), "weight is not given"},
		{norm(func(a *NormQuantiseArgs) { a.WeightBF16 = 3 }), "bf16 weight is 3"},
		{norm(func(a *NormQuantiseArgs) { a.Weight, a.Codes = 0, 0 }), "neither a weight nor a sum is given"},
		{norm(func(a *NormQuantiseArgs) { a.Results = somewhere }), "ids is not given"},
		{norm(func(a *NormQuantiseArgs) {
			a.Results, a.IDs, a.Shares, a.IDStride, a.ShareStride = somewhere, somewhere, somewhere, 40, 40
			a.Top, a.Experts = MaxTop+1, 64
		}), "a row has 33 choices"},
	} {
		if c.says == "" {
			if !errors.Is(c.err, image.ErrUnknown) {
				t.Errorf("correct arguments ended with %v, want to get as far as the kernel", c.err)
			}
		} else if !errors.Is(c.err, ErrArgument) || !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("got %v, want an argument error that says %q", c.err, c.says)
		}
	}
	if err := rows(func(a *QuantiseRowsArgs) { a.Rows = 0 }); err != nil {
		t.Errorf("no rows to quantise: %v", err)
	}
	if err := norm(func(a *NormQuantiseArgs) { a.Rows = 0 }); err != nil {
		t.Errorf("no rows to normalise: %v", err)
	}
}
