package cuda

import (
	"errors"
	"strings"
	"testing"

	"sparrow/kernel/cuda/image"
	"sparrow/layout"
)

// Addresses that no launch reaches: the kernels of these tests are not loaded, so a call that passes its checks ends
// with ErrUnknown.
const somewhere Ptr = 1 << 20

var (
	somePool   = PoolView{Base: somewhere, PageBytes: 64 * 1152, PageTokens: 64, Slots: 640}
	someRotary = RotaryView{Table: somewhere, Rows: 100}
)

func someWrite() WriteMainArgs {
	return WriteMainArgs{Pool: somePool, Rotary: someRotary, Latent: somewhere, Key: somewhere, Positions: somewhere,
		Slots: somewhere, LatentStride: 512, KeyStride: 64, Tokens: 5, KScale: 1}
}

func someSlots() GatherSlotsArgs {
	return GatherSlotsArgs{Pool: somePool, Source: SlotListView{somewhere}, Rows: somewhere, RowBytes: 1152, Count: 5,
		KScale: 1}
}

func somePages() GatherPagesArgs {
	return GatherPagesArgs{Pool: somePool,
		Source: PageTableView{Table: somewhere, Starts: somewhere, TableStride: 4, Requests: 2}, Rows: somewhere,
		RowBytes: 1152, Count: 5, KScale: 1}
}

func someKeys() WriteIndexKeyArgs {
	return WriteIndexKeyArgs{Pool: somePool, Rotary: someRotary, Keys: somewhere, Gamma: somewhere, Beta: somewhere,
		Positions: somewhere, Slots: somewhere, Epsilon: 1e-6, KeyStride: 128, Tokens: 5}
}

func someQueries() IndexQueryArgs {
	return IndexQueryArgs{Rotary: someRotary, Queries: somewhere, Weights: somewhere, Positions: somewhere,
		Codes: somewhere, Folded: somewhere, QueryStride: 8192, WeightStride: 64, Tokens: 5, Heads: 64, PaddedHeads: 64}
}

func someV4() WriteV4Args {
	return WriteV4Args{Pool: somePool, Rotary: someRotary, Rows: somewhere, Positions: somewhere, Slots: somewhere,
		RowStride: 512, Tokens: 5}
}

func someCombine() CombineV4Args {
	return CombineV4Args{Window: somewhere, WindowLength: somewhere, Extra: somewhere, ExtraLength: somewhere,
		Rows: somewhere, Lengths: somewhere, WindowStride: 128, ExtraStride: 512, Tokens: 5, WindowWidth: 128,
		ExtraWidth: 512}
}

func someTopK() TopKArgs {
	return TopKArgs{Scores: somewhere, Lengths: somewhere, Out: somewhere, PageTable: somewhere, Offsets: somewhere,
		Stride: 64, Rows: 5, K: 16, RowsPerRequest: 1}
}

// with changes one argument of a launch.
func with[T any](a T, change func(*T)) *T {
	change(&a)
	return &a
}

func TestLaunchersNameTheArgumentThatIsWrong(t *testing.T) {
	k, s := &Kernels{device: &Device{}}, &Stream{}
	keep := func(*WriteMainArgs) {}
	for _, c := range []struct {
		name string
		err  error
		says string // empty: the arguments are fine
	}{
		{"write", k.WriteMain(s, layout.BF16Row1152, with(someWrite(), keep)), ""},
		{"write nothing", k.WriteMain(s, layout.BF16Row1152,
			with(someWrite(), func(a *WriteMainArgs) { a.Tokens = 0 })), "no launch"},
		{"layout", k.WriteMain(s, layout.F32Row2304, with(someWrite(), keep)), "f32-2304"},
		{"no latent", k.WriteMain(s, layout.BF16Row1152, with(someWrite(), func(a *WriteMainArgs) { a.Latent = 0 })),
			"latent is not given"},
		{"latent alignment", k.WriteMain(s, layout.BF16Row1152,
			with(someWrite(), func(a *WriteMainArgs) { a.Latent = 8 })), "latent at 0x8"},
		{"latent stride", k.WriteMain(s, layout.BF16Row1152,
			with(someWrite(), func(a *WriteMainArgs) { a.LatentStride = 500 })), "latent stride 500"},
		{"negative tokens", k.WriteMain(s, layout.BF16Row1152,
			with(someWrite(), func(a *WriteMainArgs) { a.Tokens = -1 })), "tokens -1"},
		{"page too small", k.WriteMain(s, layout.BF16Row1152,
			with(someWrite(), func(a *WriteMainArgs) { a.Pool.PageBytes = 64 * 656 })), "page bytes 41984"},
		{"scale", k.WriteMain(s, layout.FP8Row576, with(someWrite(), func(a *WriteMainArgs) { a.KScale = 0 })),
			"scale 0"},
		{"rotary", k.WriteMain(s, layout.FP8Row656, with(someWrite(), func(a *WriteMainArgs) { a.Rotary.Rows = 0 })),
			"rotary rows 0"},
		{"gather", k.GatherSlots(s, layout.FP8Row656, with(someSlots(), func(*GatherSlotsArgs) {})), ""},
		{"gather row bytes", k.GatherSlots(s, layout.FP8Row656,
			with(someSlots(), func(a *GatherSlotsArgs) { a.RowBytes = 656 })), "row bytes 656"},
		{"gather no slots", k.GatherSlots(s, layout.FP8Row656,
			with(someSlots(), func(a *GatherSlotsArgs) { a.Source.Slots = 0 })), "slots is not given"},
		{"raw to block", k.RawToBlockSlots(s, with(someSlots(), func(a *GatherSlotsArgs) { a.RowBytes = 656 })), ""},
		{"pages", k.GatherPages(s, layout.FP8Row576, with(somePages(), func(*GatherPagesArgs) {})), ""},
		{"raw to block pages", k.RawToBlockPages(s,
			with(somePages(), func(a *GatherPagesArgs) { a.Source.Requests = -1 })), "requests -1"},
		{"index keys", k.WriteIndexKeys(s, with(someKeys(), func(*WriteIndexKeyArgs) {})), ""},
		{"index keys without norm", k.WriteIndexKeys(s,
			with(someKeys(), func(a *WriteIndexKeyArgs) { a.Gamma, a.Beta, a.Epsilon = 0, 0, 0 })), ""},
		{"epsilon", k.WriteIndexKeys(s, with(someKeys(), func(a *WriteIndexKeyArgs) { a.Epsilon = 0 })), "epsilon"},
		{"rope at 32", k.WriteIndexKeys(s, with(someKeys(), func(a *WriteIndexKeyArgs) { a.Recipe.RopeAt = 32 })),
			"start at 32"},
		{"hadamard 2", k.WriteIndexKeys(s, with(someKeys(), func(a *WriteIndexKeyArgs) { a.Recipe.Hadamard = 2 })),
			"hadamard is 2"},
		{"queries", k.PrepareIndexQueries(s, with(someQueries(), func(*IndexQueryArgs) {})), ""},
		{"padding below heads", k.PrepareIndexQueries(s,
			with(someQueries(), func(a *IndexQueryArgs) { a.PaddedHeads = 32 })), "padded heads 32"},
		{"v4", k.WriteV4(s, with(someV4(), func(*WriteV4Args) {})), ""},
		{"v4 gather", k.GatherV4Slots(s, with(someSlots(), func(*GatherSlotsArgs) {})), ""},
		{"v4 gather pages", k.GatherV4Pages(s, with(somePages(), func(a *GatherPagesArgs) { a.RowBytes = 1000 })),
			"row bytes 1000"},
		{"combine", k.CombineV4(s, with(someCombine(), func(*CombineV4Args) {})), ""},
		{"combine stride", k.CombineV4(s, with(someCombine(), func(a *CombineV4Args) { a.ExtraStride = 100 })),
			"extra stride 100"},
		{"top-k", k.SelectTopK(s, with(someTopK(), func(*TopKArgs) {})), ""},
		{"kept without via", k.SelectTopK(s, with(someTopK(), func(a *TopKArgs) { a.Kept = somewhere })),
			"kept at 0x100000 and via at 0x0"},
		{"negative columns", k.SelectTopK(s, with(someTopK(), func(a *TopKArgs) { a.Columns = -1 })), "columns -1"},
		{"top-k too large", k.SelectTopK(s, with(someTopK(), func(a *TopKArgs) { a.K = 2049 })), "top-k of 2049"},
		{"top-k transform", k.SelectTopK(s, with(someTopK(), func(a *TopKArgs) { a.Transform = 3 })), "transform 3"},
		{"top-k ragged without offsets",
			k.SelectTopK(s, with(someTopK(), func(a *TopKArgs) { a.Transform, a.Offsets = int32(TopKRagged), 0 })),
			"offsets is not given"},
		{"paged scores of 5 rows", k.ScorePaged(s, 64, &IndexPagedArgs{NextN: 5}), "5 query rows"},
	} {
		switch c.says {
		case "no launch":
			if c.err != nil {
				t.Errorf("%s: %v", c.name, c.err)
			}
		case "":
			if !errors.Is(c.err, image.ErrUnknown) {
				t.Errorf("%s: got %v, want to get as far as the kernel", c.name, c.err)
			}
		default:
			if !errors.Is(c.err, ErrArgument) || !strings.Contains(c.err.Error(), c.says) {
				t.Errorf("%s: got %v, want an argument error that says %q", c.name, c.err, c.says)
			}
		}
	}
}

func TestScoreArgumentsAreCheckedBeforeMapsAreMade(t *testing.T) {
	d := &Device{}
	r := IndexRagged{Queries: somewhere, Keys: somewhere, Scales: somewhere, Weights: somewhere, KeyStart: somewhere,
		KeyEnd: somewhere, Scores: somewhere, Stride: 64, Rows: 2, KeyCount: 64, Heads: 64}
	if _, err := r.Encode(d); !errors.Is(err, ErrClosed) {
		t.Errorf("correct ragged arguments ended with %v, want to get as far as the driver", err)
	}
	r.Heads = 48
	if _, err := r.Encode(d); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), "48 heads") {
		t.Errorf("48 heads gave %v", err)
	}
	p := IndexPaged{Queries: somewhere, Cache: somewhere, PageBytes: layout.IndexPageBytes, Pages: 4,
		Weights: somewhere, ContextLengths: somewhere, BlockTable: somewhere, Scores: somewhere, Stride: 256,
		TableStride: 4, Requests: 2, NextN: 2, Heads: 64, MaxContext: 256, MaxBlocks: 4}
	if _, err := p.Encode(d); !errors.Is(err, ErrClosed) {
		t.Errorf("correct paged arguments ended with %v, want to get as far as the driver", err)
	}
	p.NextN = 5
	if _, err := p.Encode(d); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), "5 query rows") {
		t.Errorf("5 query rows gave %v", err)
	}
}
