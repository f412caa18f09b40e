// Package ops makes valid arguments for every operation of a device, for tests that run all operations.
package ops

import (
	"encoding/binary"
	"math"
	"testing"

	"sparrow/internal/block"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
)

// Case is an operation with a unique name.
type Case struct {
	Name string
	Op   kernel.Op
}

// Maker allocates the tensors of arguments.
type Maker struct {
	TB         testing.TB
	Memory     kernel.Memory
	Preparer   kernel.Preparer
	Activation kernel.DType
	// Formats adds weights of types that not every device has kernels for.
	Formats bool
	// Apart makes rows that are apart: no two tensors with rows of equal length have the same stride.
	Apart bool
	// Empty makes batches without rows.
	Empty bool
	gap   int // number of elements between the rows of the latest tensor
	// Made, if set, is called with the name of every tensor.
	Made func(name string, t kernel.Tensor)
}

func (m *Maker) tensor(name string, d kernel.DType, rows, cols int) kernel.Tensor {
	m.TB.Helper()
	gap := 0
	if m.Apart && d != kernel.U8 && cols > 1 { // a pool is pages, and kernels read lists of numbers without gaps
		m.gap += 16
		gap = m.gap
	}
	t, err := kernel.New(m.Memory, d, rows, cols+gap)
	if err != nil {
		m.TB.Fatal(err)
	}
	t = t.Columns(0, cols)
	if m.Made != nil {
		m.Made(name, t)
	}
	return t
}

func (m *Maker) rows(name string, rows, cols int) kernel.Tensor {
	return m.tensor(name, m.Activation, rows, cols)
}

func (m *Maker) f32(name string, rows, cols int) kernel.Tensor {
	return m.tensor(name, kernel.F32, rows, cols)
}

func (m *Maker) ints(name string, rows, cols int) kernel.Tensor {
	return m.tensor(name, kernel.I32, rows, cols)
}

func (m *Maker) pool(name string, kind layout.Kind, pages, bytes, tokens int) kernel.Pool {
	return kernel.Pool{Mem: m.tensor(name, kernel.U8, pages, bytes), Layout: kind, PageTokens: tokens}
}

func (m *Maker) main(name string, kind layout.Kind, pages, tokens int) kernel.Pool {
	m.TB.Helper()
	l, err := layout.MainOf(kind)
	if err != nil {
		m.TB.Fatal(err)
	}
	return m.pool(name, kind, pages, l.PageBytes(tokens), tokens)
}

func (m *Maker) index(name string, pages, tokens int) kernel.Pool {
	m.TB.Helper()
	l, err := layout.IndexOf(layout.IndexPage132)
	if err != nil {
		m.TB.Fatal(err)
	}
	return m.pool(name, layout.IndexPage132, pages, l.PageBytes(tokens), tokens)
}

func (m *Maker) entries(name string, pages, tokens int) kernel.Pool {
	return m.pool(name, layout.V4Row584, pages, layout.V4Packed{}.PageBytes(tokens), tokens)
}

// zeros returns a tensor in host memory.
func zeros(d kernel.DType, rows, cols int) kernel.Tensor {
	return kernel.Tensor{Buf: make(kernel.HostBuffer, rows*cols*d.Size()), DType: d, Rows: rows, Cols: cols,
		Stride: cols}
}

// weight returns a stored weight of zeros in host memory, with scales if its type has scales.
func weight(d kernel.DType, out, in int) kernel.Weight {
	w := kernel.Weight{Data: zeros(d, out, in/d.Values())}
	switch d {
	case kernel.E4M3:
		w.BlockRows, w.BlockCols = 128, 128
		w.Scale = zeros(kernel.F32, (out+127)/128, (in+127)/128)
	case kernel.E2M1x2:
		w.BlockRows, w.BlockCols = 1, 32
		w.Scale = zeros(kernel.E8M0, out, in/32)
	case kernel.U4x2: // with zero points
		w.BlockRows, w.BlockCols = 1, 128
		w.Scale, w.Zero = zeros(kernel.F16, out, in/128), zeros(kernel.U8, out, in/128)
	case kernel.I8:
		w.BlockRows, w.BlockCols = 1, 64
		w.Scale = zeros(kernel.BF16, out, in/64)
	}
	return w
}

// smallBlocks returns a matrix of e4m3 in blocks of 32 x 32 that merge.
func smallBlocks(out, in int) kernel.Weight {
	w := weight(kernel.E4M3, out, in)
	w.BlockRows, w.BlockCols, w.Pow2Rows = 32, 32, true
	w.Scale = zeros(kernel.F32, (out+31)/32, (in+31)/32)
	for b := w.Scale.Buf.(kernel.HostBuffer); len(b) > 0; b = b[4:] {
		binary.NativeEndian.PutUint32(b, math.Float32bits(1))
	}
	return w
}

func (m *Maker) matrix(d kernel.DType, out, in int, role kernel.Role) kernel.Matrix {
	m.TB.Helper()
	return m.prepared(weight(d, out, in), role)
}

func (m *Maker) prepared(w kernel.Weight, role kernel.Role) kernel.Matrix {
	m.TB.Helper()
	x, err := m.Preparer.Prepare(w, role)
	if err != nil {
		m.TB.Fatal(err)
	}
	return x
}

func (m *Maker) experts(d kernel.DType, n, hidden, inner int) kernel.Experts {
	m.TB.Helper()
	var w kernel.ExpertWeights
	for range n {
		w.Gate, w.Up = append(w.Gate, weight(d, inner, hidden)), append(w.Up, weight(d, inner, hidden))
		w.Down = append(w.Down, weight(d, hidden, inner))
	}
	x, err := m.Preparer.PrepareExperts(w)
	if err != nil {
		m.TB.Fatal(err)
	}
	return x
}

// All returns every operation with valid arguments, with few rows and odd numbers of rows.
func (m *Maker) All() []Case {
	const heads, k = 64, 700 // number of heads and selected keys
	t, large := 5, 300       // number of rows
	if m.Empty {
		t, large = 0, 0
	}
	var list []Case
	add := func(name string, op kernel.Op) { list = append(list, Case{name, op}) }
	stream := func(name string, kind kernel.Pool, width int) kernel.Stream {
		return kernel.Stream{Pool: kind, Indices: m.ints(name+" indices", t, width), Lens: m.ints(name+" lens", t, 1)}
	}
	sequences := func() kernel.Sequences {
		return kernel.Sequences{Rows: m.ints("seq rows", t, 1), Spans: m.ints("spans", 2, 6),
			Snapshots: m.ints("snapshots", t, 1)}
	}
	dims := kernel.LatentDims{Heads: heads, Nope: 128, Rope: 64, V: 128, Latent: 512}
	for _, kind := range []layout.Kind{layout.BF16Row1152, layout.FP8Row656, layout.FP8Row576} {
		for _, split := range []int{0, 256} {
			add("sparse attend "+kind.String(), kernel.SparseArgs{Out: m.rows("out", t, heads*512),
				LSE: m.f32("lse", t, heads), Max: m.f32("max", t, heads), Q: m.rows("q", t, heads*576),
				Pool: m.main("pool", kind, 12, 64), Indices: m.ints("indices", t, k), Lens: m.ints("lens", t, 1),
				Heads: heads, Scale: 0.5, SplitKeys: split})
		}
		add("latent attend "+kind.String(), kernel.LatentArgs{Out: m.rows("out", t, heads*512),
			Q: m.rows("q", t, heads*576), Pool: m.main("pool", kind, 12, 64), Table: m.ints("table", 3, 40),
			TableRow: m.ints("table row", t, 1), Lens: m.ints("lens", t, 1), Heads: heads, Scale: 0.5, SplitKeys: 256})
		add("store "+kind.String(), kernel.StoreArgs{KV: m.rows("kv", t, 576), Norm: m.f32("norm", 1, 512), Eps: 1e-6,
			Angles: m.f32("angles", t, 64), Slots: m.ints("slots", t, 1), Pool: m.main("pool", kind, 12, 64)})
		add("gather "+kind.String(), kernel.GatherArgs{Out: m.rows("out", 9, 576), Slots: m.ints("slots", 9, 1),
			Pool: m.main("pool", kind, 12, 64)})
	}
	add("convert", kernel.ConvertArgs{Out: m.main("out", layout.FP8Row656, 7, 64),
		In: m.main("in", layout.FP8Row576, 12, 64), Pages: m.ints("pages", 7, 1)})
	add("dense attend", kernel.DenseArgs{Out: m.rows("out", t, heads*128), Q: m.rows("q", t, heads*192),
		KV: m.rows("kv", 33, heads*256), Rope: m.rows("rope", 33, 64), Start: m.ints("start", t, 1),
		Lens: m.ints("lens", t, 1), Dims: dims, Scale: 0.5})
	for _, most := range []int{0, 9000} {
		add("dual attend", kernel.DualArgs{Out: m.rows("out", t, heads*512), LSE: m.f32("lse", t, heads),
			Q: m.rows("q", t, heads*512), Window: stream("window", m.entries("window", 4, 128), 128),
			Extra: stream("extra", m.entries("extra", 6, 64), 600), Sinks: m.f32("sinks", 1, heads), Heads: heads,
			Scale: 0.5, MostExtra: most})
	}
	add("dual attend, window", kernel.DualArgs{Out: m.rows("out", 1, heads*512), Q: m.rows("q", 1, heads*512),
		Window: kernel.Stream{Pool: m.entries("window", 4, 128), Indices: m.ints("indices", 1, 128),
			Lens: m.ints("lens", 1, 1)}, Sinks: m.f32("sinks", 1, heads), Heads: heads, Scale: 0.5})
	add("flat attend", kernel.FlatArgs{Out: m.rows("out", t, heads*512), Q: m.rows("q", t, heads*512),
		KV: m.rows("kv", 300, 512), Indices: m.ints("indices", t, 200), Lens: m.ints("lens", t, 1),
		Sinks: m.f32("sinks", 1, heads), Heads: heads, Scale: 0.5})
	add("unpack", kernel.UnpackArgs{Out: m.rows("out", 9, 512), Slots: m.ints("slots", 9, 1),
		Pool: m.entries("pool", 6, 64)})
	add("combine", kernel.CombineArgs{Out: m.ints("out", t, 768), Lens: m.ints("lens", t, 1),
		Window: m.ints("window", t, 128), WindowLens: m.ints("window lens", t, 1),
		WindowBase: m.ints("window base", t, 1), Extra: m.ints("extra", t, 640), ExtraLens: m.ints("extra lens", t, 1),
		ExtraBase: m.ints("extra base", t, 1)})
	add("store index", kernel.IndexStoreArgs{Key: m.rows("key", t, 128), Weight: m.f32("weight", 1, 128),
		Bias: m.f32("bias", 1, 128), Eps: 1e-6, Angles: m.f32("angles", t, 64), Pairing: kernel.Interleaved,
		Hadamard: true, Slots: m.ints("slots", t, 1), Pool: m.index("pool", 6, 64)})
	add("gather index", kernel.IndexGatherArgs{Out: m.index("out", 1, 12), Slots: m.ints("slots", 9, 1),
		Pool: m.index("pool", 6, 64)})
	add("index query", kernel.IndexQueryArgs{Out: m.tensor("out", kernel.E4M3, t, 64*128), W: m.f32("w", t, 64),
		Q: m.rows("q", t, 32*128), Weights: m.f32("weights", t, 32), Angles: m.f32("angles", t, 64), Heads: 32,
		Padded: 64, Offset: 64, Pairing: kernel.Interleaved, Hadamard: true, Scales: num.ScalePow2})
	for next := range 3 {
		a := kernel.ScoreArgs{Out: m.f32("out", 6, 200), Q: m.tensor("q", kernel.E4M3, 6, 64*128), W: m.f32("w", 6, 64),
			Keys: m.index("keys", 6, 64), Lens: m.ints("lens", 6, 1), Heads: 64, SkipUpTo: 100}
		if next == 0 {
			a.Keys, a.Start = m.index("keys", 1, 200), m.ints("start", 6, 1)
		} else {
			a.Table, a.TableRow, a.NextN = m.ints("table", 3, 4), m.ints("table row", 6, 1), next
		}
		add("score", a)
	}
	add("select", kernel.SelectArgs{Out: m.ints("out", t, 128), Scores: m.f32("scores", t, 200),
		Lens: m.ints("lens", t, 1), Values: m.f32("values", t, 128)})
	add("block max", kernel.BlockMaxArgs{Out: m.f32("out", t, 8), Scores: m.f32("scores", t, 200),
		Lens: m.ints("lens", t, 1), Size: 32, SkipUpTo: 9})
	add("locate", kernel.LocateArgs{Out: m.ints("out", t, 128), Positions: m.ints("positions", t, 128),
		Table: m.ints("table", 3, 4), TableRow: m.ints("table row", t, 1), PageTokens: 64})
	add("locate by offset", kernel.LocateArgs{Out: m.ints("out", t, 128), Positions: m.ints("positions", t, 128),
		Offset: m.ints("offset", t, 1)})
	add("spread", kernel.SpreadArgs{Out: m.ints("out", t, 67), Lens: m.ints("lens", t, 1),
		Pools: m.ints("pools", t, 16), Seen: m.ints("seen", t, 1), Table: m.ints("table", 3, 4),
		TableRow: m.ints("table row", t, 1), PageTokens: 64,
		Pool: 4})
	add("spread by offset", kernel.SpreadArgs{Out: m.ints("out", t, 67), Lens: m.ints("lens", t, 1),
		Pools: m.ints("pools", t, 16), Seen: m.ints("seen", t, 1), Offset: m.ints("offset", t, 1), Pool: 4})
	add("compress", kernel.CompressArgs{Out: m.rows("out", 2, 512), Values: m.f32("values", t, 1024),
		Gates: m.f32("gates", t, 1024), State: m.f32("state", 9, 2048), APE: m.f32("ape", 4, 1024),
		Sources: m.ints("sources", 2, 8), Ratio: 4, Overlap: true})
	add("put", kernel.PutArgs{Out: m.f32("out", 9, 16), X: m.f32("x", t, 16), Rows: m.ints("rows", t, 1)})
	add("take", kernel.TakeArgs{Out: m.rows("out", t, 16), X: m.rows("x", 9, 16), Rows: m.ints("rows", t, 1)})
	add("copy", kernel.CopyArgs{Out: m.rows("out", t, 16), X: m.rows("x", t, 16)})
	add("store entries", kernel.EntryStoreArgs{Rows: m.rows("rows", t, 512), Norm: m.f32("norm", 1, 512), Eps: 1e-6,
		Angles: m.f32("angles", t, 64), Slots: m.ints("slots", t, 1), Pool: m.entries("pool", 6, 64)})
	add("store keys", kernel.KeyStoreArgs{Keys: m.rows("keys", t, 128), Norm: m.f32("norm", 1, 128), Eps: 1e-6,
		Angles: m.f32("angles", t, 64), Hadamard: true, Slots: m.ints("slots", t, 1), Pool: m.index("pool", 6, 64)})
	add("embed", kernel.EmbedArgs{Out: m.rows("out", t, 256), Table: m.matrix(kernel.BF16, 1000, 256, kernel.LookedUp),
		IDs: m.ints("ids", t, 1)})
	add("embed a part", kernel.EmbedArgs{Out: m.rows("out", t, 256),
		Table: m.matrix(kernel.BF16, 500, 256, kernel.LookedUp), IDs: m.ints("ids", t, 1),
		Part: kernel.Part{First: 500, Of: 1000}})
	add("norm", kernel.NormArgs{Out: m.rows("out", t, 256), X: m.rows("x", t, 256), Weight: m.f32("weight", 1, 256),
		Eps: 1e-6})
	for _, kind := range []kernel.DType{kernel.BF16, kernel.E4M3} {
		for _, rows := range []int{t, large} {
			add("multiply "+kind.String(), kernel.MultiplyArgs{Out: m.rows("out", rows, 272), X: m.rows("x", rows, 512),
				W: m.matrix(kind, 272, 512, kernel.Projected)})
			add("multiply and add "+kind.String(), kernel.MultiplyArgs{Out: m.rows("out", rows, 256),
				X: m.rows("x", rows, 512), W: m.matrix(kind, 256, 512, kernel.Projected), Accumulate: true})
		}
		add("multiply f32 "+kind.String(), kernel.MultiplyArgs{Out: m.f32("out", t, 250), X: m.rows("x", t, 512),
			W: m.matrix(kind, 250, 512, kernel.Projected)})
		add("project "+kind.String(), kernel.ProjectArgs{X: m.rows("x", t, 512), To: []kernel.Projection{
			{Out: m.rows("a", t, 256), W: m.matrix(kind, 256, 512, kernel.Projected)},
			{Out: m.f32("b", t, 64), W: m.matrix(kernel.BF16, 64, 512, kernel.Projected)}}})
	}
	var most []kernel.DType
	if m.Formats {
		most = []kernel.DType{kernel.E2M1x2, kernel.U4x2, kernel.I8, kernel.Blocks(block.Q4_K)}
		add("multiply small blocks", kernel.MultiplyArgs{Out: m.rows("out", t, 272), X: m.rows("x", t, 512),
			W: m.prepared(smallBlocks(272, 512), kernel.Projected)})
	}
	for _, kind := range most {
		add("multiply "+kind.String(), kernel.MultiplyArgs{Out: m.rows("out", t, 272), X: m.rows("x", t, 512),
			W: m.matrix(kind, 272, 512, kernel.Projected)})
	}
	for _, kind := range most[:min(len(most), 2)] {
		add("experts "+kind.String(), kernel.ExpertArgs{Out: m.rows("out", t, 256), X: m.rows("x", t, 256),
			IDs: m.ints("ids", t, 3), Weights: m.f32("weights", t, 3), Experts: m.experts(kind, 8, 256, 128)})
	}
	add("gate", kernel.GateArgs{Out: m.rows("out", t, 256), Gate: m.rows("gate", t, 256), Up: m.rows("up", t, 256),
		Limit: 7})
	add("hyper pre", kernel.HyperPreArgs{Out: m.rows("out", t, 256), Post: m.f32("post", t, 4),
		Comb: m.f32("comb", t, 16), X: m.rows("x", t, 1024), Mix: m.f32("mix", t, 24), Base: m.f32("base", 1, 24),
		Scale: m.f32("scale", 1, 3), Streams: 4, Rounds: 20, NormEps: 1e-6, Eps: 1e-5})
	add("hyper post", kernel.HyperPostArgs{X: m.rows("x", t, 1024), Sub: m.rows("sub", t, 256),
		Post: m.f32("post", t, 4), Comb: m.f32("comb", t, 16), Streams: 4})
	add("hyper head", kernel.HyperHeadArgs{Out: m.rows("out", t, 256), X: m.rows("x", t, 1024), Mix: m.f32("mix", t, 4),
		Base: m.f32("base", 1, 4), Scale: m.f32("scale", 1, 1), Streams: 4, NormEps: 1e-6, Eps: 1e-5})
	add("head norm", kernel.HeadNormArgs{X: m.rows("x", t, 2048), Heads: 4, Eps: 1e-6})
	add("absorb", kernel.AbsorbArgs{Out: m.rows("out", t, heads*576), Q: m.rows("q", t, heads*192),
		KVB: m.matrix(kernel.BF16, heads*256, 512, kernel.Latent), Dims: dims})
	add("expand", kernel.ExpandArgs{Out: m.rows("out", t, heads*128), U: m.rows("u", t, heads*512),
		KVB: m.matrix(kernel.BF16, heads*256, 512, kernel.Latent), Dims: dims})
	add("convolve", kernel.ConvArgs{Out: m.rows("out", t, 256), X: m.rows("x", t, 256), Weight: m.f32("weight", 256, 4),
		State: m.f32("state", 9, 256), Kept: m.f32("kept", 6, 256), Sequences: sequences()})
	add("delta", kernel.DeltaArgs{Out: m.rows("out", t, 256), Q: m.rows("q", t, 256), K: m.rows("k", t, 256),
		V: m.rows("v", t, 256), Gate: m.f32("gate", t, 256), Beta: m.f32("beta", t, 2), ALog: m.f32("a", 1, 2),
		Bias: m.f32("bias", 1, 256), State: m.f32("state", 3*256, 128), Kept: m.f32("kept", 2*256, 128),
		Held: m.f32("held", 3*2, kernel.HeldWidth(2)), Sequences: sequences(), Heads: 2, Bound: -5, Chunk: 16,
		First: m.ints("first", 2, 1)})
	add("delta by rows", kernel.DeltaArgs{Out: m.rows("out", t, 256), Q: m.rows("q", t, 256), K: m.rows("k", t, 256),
		V: m.rows("v", t, 256), Gate: m.f32("gate", t, 256), Beta: m.f32("beta", t, 2), ALog: m.f32("a", 1, 2),
		Bias: m.f32("bias", 1, 256), State: m.f32("state", 3*256, 128), Kept: m.f32("kept", 2*256, 128),
		Held: m.f32("held", 3*2, kernel.HeldWidth(2)), Sequences: sequences(), Heads: 2, Bound: -5})
	add("gated norm", kernel.GatedNormArgs{Out: m.rows("out", t, 256), X: m.rows("x", t, 256),
		Gate: m.rows("gate", t, 256), Weight: m.f32("weight", 1, 128), Heads: 2, Eps: 1e-6})
	add("mean", kernel.MeanStreamsArgs{Out: m.rows("out", t, 256), X: m.rows("x", t, 1024), Streams: 4})
	add("layer norm", kernel.LayerNormArgs{Out: m.rows("out", t, 128), X: m.rows("x", t, 128),
		Weight: m.f32("weight", 1, 128), Bias: m.f32("bias", 1, 128), Eps: 1e-6})
	route := func() (ids, weights, logits kernel.Tensor) {
		return m.ints("ids", t, 6), m.f32("weights", t, 6), m.f32("logits", t, 64)
	}
	ids, weights, logits := route()
	add("route", kernel.RouteArgs{IDs: ids, Weights: weights, Logits: logits, Bias: m.f32("bias", 1, 64), Groups: 8,
		KeepGroups: 4, Normalize: true, Scale: 2.5})
	ids, weights, logits = route()
	add("route root", kernel.RootRouteArgs{IDs: ids, Weights: weights, Logits: logits, Bias: m.f32("bias", 1, 64),
		Scale: 2.5})
	ids, weights, logits = route()
	add("route hash", kernel.HashRouteArgs{IDs: ids, Weights: weights, Logits: logits, Table: m.ints("table", 1000, 6),
		Tokens: m.ints("tokens", t, 1), Scale: 2.5})
	for _, kind := range []kernel.DType{kernel.BF16, kernel.E4M3} {
		x := m.experts(kind, 8, 256, 128)
		for _, rows := range []int{t, large} {
			add("experts "+kind.String(), kernel.ExpertArgs{Out: m.rows("out", rows, 256), X: m.rows("x", rows, 256),
				IDs: m.ints("ids", rows, 3), Weights: m.f32("weights", rows, 3), Experts: x, Limit: 7,
				Prompt: min(2, rows)})
		}
		add("a part of experts "+kind.String(), kernel.ExpertArgs{Out: m.rows("out", t, 256), X: m.rows("x", t, 256),
			IDs: m.ints("ids", t, 3), Weights: m.f32("weights", t, 3), Experts: x, Part: kernel.Part{First: 8, Of: 24}})
	}
	add("angles", kernel.AngleArgs{Out: m.f32("out", t, 64), Positions: m.ints("positions", t, 1),
		InvFreq: m.f32("frequencies", 1, 32), Scale: 1.5})
	add("rotate", kernel.RotateArgs{X: m.rows("x", t, 4*192), Angles: m.f32("angles", t, 64), Heads: 4, HeadDim: 192,
		Offset: 128, Pairing: kernel.Interleaved, Inverse: true})
	add("candidates", kernel.CandidateArgs{Values: m.f32("values", t, 20), IDs: m.ints("ids", t, 20),
		LogSum: m.f32("log sum", t, 1), Logits: m.f32("logits", t, 1000)})
	add("sample", kernel.SampleArgs{IDs: m.ints("ids", t, 1), Logits: m.f32("logits", t, 1000),
		Draws: m.ints("draws", t, 10)})
	add("accept", kernel.AcceptArgs{Out: m.ints("out", 1, 7), Tokens: m.ints("tokens", 9, 1),
		Drafts: m.ints("drafts", 2, 5), Words: m.ints("words", t, 5)})
	v41 := func(name string, pages, tokens int) kernel.Pool {
		m.TB.Helper()
		l, err := layout.IndexOf(layout.V41Index68)
		if err != nil {
			m.TB.Fatal(err)
		}
		return m.pool(name, layout.V41Index68, pages, l.PageBytes(tokens), tokens)
	}
	add("store keys of V4.1", kernel.KeyStoreArgs{Keys: m.rows("keys", t, 128), Norm: m.f32("norm", 1, 128), Eps: 1e-6,
		Angles: m.f32("angles", t, 64), Slots: m.ints("slots", t, 1), Pool: v41("pool", 6, 64)})
	for _, blocks := range []bool{false, true} {
		a := kernel.ScoreArgs{Out: m.f32("out", 6, 192), Q: m.rows("q", 6, 32*128), W: m.f32("w", 6, 32),
			Keys: v41("keys", 6, 64), Lens: m.ints("lens", 6, 1), Heads: 32, SkipUpTo: 100,
			Table: m.ints("table", 3, 4), TableRow: m.ints("table row", 6, 1), NextN: 1}
		if blocks {
			a.Blocks, a.BlockKeys = m.ints("blocks", 6, 6), 32
		}
		add("score of V4.1", a)
	}
	add("tally", kernel.TallyArgs{Counts: m.ints("counts", 1, 64), IDs: m.ints("ids", t, 6),
		Seen: m.ints("seen", t, 1)})
	return list
}
