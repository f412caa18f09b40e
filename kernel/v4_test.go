package kernel_test

import (
	"errors"
	"strings"
	"testing"

	"sparrow/kernel"
	"sparrow/layout"
)

// Every V4 operation refuses unsupported arguments with an error that names the argument.
func TestV4Checks(t *testing.T) {
	f := func(r, c int) kernel.Tensor { return tensor(t, kernel.F32, r, c) }
	i := func(r, c int) kernel.Tensor { return tensor(t, kernel.I32, r, c) }
	page := layout.V4Packed{}.PageBytes(2)
	pool := kernel.Pool{Mem: tensor(t, kernel.U8, 3, page), Layout: layout.V4Row584, PageTokens: 2}
	unpadded := kernel.Pool{Mem: tensor(t, kernel.U8, 3, 2*584), Layout: layout.V4Row584, PageTokens: 2}
	stream := kernel.Stream{Pool: pool, Indices: i(2, 4), Lens: i(2, 1)}
	dual := kernel.DualArgs{Out: f(2, 1024), Q: f(2, 1024), Window: stream, Sinks: f(1, 2), Heads: 2}
	packed := kernel.Weight{Data: tensor(t, kernel.E2M1x2, 3, 32), Scale: tensor(t, kernel.E8M0, 3, 2), BlockRows: 1,
		BlockCols: 32}
	four := matrix(t, packed, kernel.Projected)
	if packed.Out() != 3 || packed.In() != 64 {
		t.Errorf("a packed matrix is %d x %d, want 3 x 64", packed.Out(), packed.In())
	}
	if s := packed.Slice(1, 3); s.Out() != 2 || s.Scale.Rows != 2 || s.Scale.Off != 2 {
		t.Errorf("rows 1 and 2 of a packed matrix: %v with scales %v at byte %d", s.Data, s.Scale, s.Scale.Off)
	}
	with := func(change func(*kernel.DualArgs)) error {
		a := dual
		change(&a)
		return a.Check()
	}
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"attention over a window alone", dual.Check(), ""},
		{"attention over both streams", with(func(a *kernel.DualArgs) { a.Extra = stream }), ""},
		{"an extra stream without lengths",
			with(func(a *kernel.DualArgs) { a.Extra = stream; a.Extra.Lens = kernel.Tensor{} }),
			"dual attend: extra lens is missing"},
		{"pages without padding", with(func(a *kernel.DualArgs) { a.Window.Pool = unpadded }),
			"window has 1168 columns, want 1728"},
		{"rows of another family", with(func(a *kernel.DualArgs) { a.Window.Pool.Layout = layout.BF16Row1152 }),
			"bf16-1152 holds no V4 entries"},
		{"too few sinks", with(func(a *kernel.DualArgs) { a.Sinks = f(1, 1) }), "sinks has 1 columns, want 2"},
		{"no heads", with(func(a *kernel.DualArgs) { a.Heads = 0 }), "dual attend: there are 0 heads, want at least 1"},
		{"a packed product", (&kernel.MultiplyArgs{Out: f(1, 3), X: f(1, 64), W: four}).Check(), ""},
		{"a packed product of another width", (&kernel.MultiplyArgs{Out: f(1, 3), X: f(1, 32), W: four}).Check(),
			"w has 64 columns, want 32"},
		{"packed without groups", kernel.Weight{Data: packed.Data, Scale: packed.Scale}.Check(kernel.Projected),
			"blocks of 0 x 0"},
		{"packed with float scales",
			kernel.Weight{Data: packed.Data, Scale: f(3, 2), BlockRows: 1, BlockCols: 32}.Check(kernel.Projected),
			"weight scales has type f32, want e8m0"},
		{"streams that do not divide",
			(&kernel.HyperPostArgs{X: f(1, 10), Sub: f(1, 3), Post: f(1, 3), Comb: f(1, 9), Streams: 3}).Check(),
			"3 streams of 10 values"},
		{"no rounds",
			(&kernel.HyperPreArgs{Out: f(1, 2), Post: f(1, 1), Comb: f(1, 1), X: f(1, 2), Mix: f(1, 3), Base: f(1, 3),
				Scale: f(1, 3), Streams: 1}).Check(), "the streams are normalised in 0 rounds, want at least 1"},
		{"heads that do not divide", (&kernel.HeadNormArgs{X: f(1, 10), Heads: 3}).Check(), "x has 3 heads in " +
			"10 columns"},
		{"too narrow an overlap",
			(&kernel.CompressArgs{Out: f(1, 4), Values: f(1, 4), Gates: f(1, 4), State: f(1, 8), APE: f(4, 4),
				Sources: i(1, 4), Ratio: 4, Overlap: true}).Check(), "values has 4 columns, want 8"},
		{"a ratio of zero", (&kernel.CompressArgs{Out: f(1, 4)}).Check(),
			"the ratio is 0 tokens per entry, want at least 1"},
		{"more experts than there are",
			(&kernel.RootRouteArgs{IDs: i(1, 3), Weights: f(1, 3), Logits: f(1, 2), Bias: f(1, 2)}).Check(),
			"the best 3 of 2 experts"},
		{"a table of another width",
			(&kernel.HashRouteArgs{IDs: i(1, 2), Weights: f(1, 2), Logits: f(1, 2), Table: i(5, 3),
				Tokens: i(1, 1)}).Check(), "table has 3 columns, want 2"},
		{"a negative clamp", (&kernel.GateArgs{Out: f(1, 1), Gate: f(1, 1), Up: f(1, 1), Limit: -1}).Check(),
			"the limit is -1"},
		{"an index rotation beyond the head",
			(&kernel.IndexQueryArgs{Out: f(1, 128), W: f(1, 1), Q: f(1, 128), Weights: f(1, 1), Angles: f(1, 64),
				Heads: 1, Offset: 65, Pairing: kernel.Interleaved}).Check(), "offset 65"},
		{"too narrow a combination",
			(&kernel.CombineArgs{Out: i(1, 128), Lens: i(1, 1), Window: i(1, 128), WindowLens: i(1, 1),
				WindowBase: i(1, 1), Extra: i(1, 1), ExtraLens: i(1, 1), ExtraBase: i(1, 1)}).Check(),
			"a multiple of 128 that holds 129"},
		{"a combination that is wide enough, but not a multiple",
			(&kernel.CombineArgs{Out: i(1, 130), Lens: i(1, 1), Window: i(1, 128), WindowLens: i(1, 1),
				WindowBase: i(1, 1)}).Check(), "out has 130 columns, want a multiple of 128"},
		{"whole numbers put into rows", (&kernel.PutArgs{Out: i(3, 4), X: i(1, 4), Rows: i(1, 1)}).Check(), ""},
		{"whole numbers put into narrower rows", (&kernel.PutArgs{Out: i(3, 2), X: i(1, 4), Rows: i(1, 1)}).Check(),
			"put: out has 2 columns, want 4"},
		{"rows put into narrower ones", (&kernel.PutArgs{Out: f(2, 3), X: f(1, 4), Rows: i(1, 1)}).Check(),
			"put: out has 3 columns, want 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			switch {
			case c.want == "" && c.err != nil:
				t.Errorf("refused: %v", c.err)
			case c.want != "" && (!errors.Is(c.err, kernel.ErrArgument) || !strings.Contains(c.err.Error(), c.want)):
				t.Errorf("got %v, want ErrArgument with %q", c.err, c.want)
			}
		})
	}
}
