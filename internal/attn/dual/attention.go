// Package dual computes the attention of DeepSeek-V4. A query attends to a window of entries, one for each token, and
// in most layers also to compressed entries, one for each group of 4 or 128 tokens. An indexer selects among the
// entries of groups of 4; queries attend to all entries of groups of 128.
package dual

import (
	"fmt"
	"math"

	"sparrow/internal/attn"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// Ratios of the compressed streams: tokens per entry.
const (
	IndexRatio = 4   // entries among which the indexer selects
	HeavyRatio = 128 // entries that every query attends to
)

// Params are the properties of a model that attention uses.
type Params struct {
	Heads, Dim, Rope      int
	QLora, OLora, OGroups int
	Window                int
	IndexHeads, TopK      int
	MostHeavy             int // maximum number of entries of ratio 128 of a sequence
	Eps                   float32
	PlainHeads            bool // heads of queries are not normalised
	// V4.1: number of entries of a candidate block, and maximum number of blocks; 0 if selections have one level.
	BlockKeys, Blocks int
	MainFreq, FarFreq []float32 // rotary frequencies of layers without compressed entries, and of the other layers
}

// Weights are the matrices of one layer.
type Weights struct {
	Ratio         int // tokens of a compressed entry; 0 if the layer has no compressed entries
	QA, QB, KV    kernel.Matrix
	OA            []kernel.Matrix // one for each group of heads
	OB            kernel.Matrix
	QNorm, KVNorm kernel.Tensor
	Sinks         kernel.Tensor // f32 [1, heads]: logits that are added to the softmax denominator
	Compress      *Compressor   // nil if the layer has no compressed entries
	Index         *Index        // nil if the ratio is not 4
}

// Compressor holds the matrices that compute compressed entries of Dim values each.
type Compressor struct {
	Dim, Ratio    int
	Values, Gates kernel.Matrix // [halves*Dim, hidden]
	APE, Norm     kernel.Tensor
}

// width returns the number of values of a raw row, which is also the number of its gates.
func (c *Compressor) width() int { return c.Values.Out() }

// Overlapped reports whether groups of a ratio also read the rows of the previous group (v4 spec, 2.4).
func Overlapped(ratio int) bool { return ratio == IndexRatio }

// Index holds the matrices of the indexer, which scores entries.
type Index struct {
	Q, Weights kernel.Matrix
	Compress   Compressor // compressor of indexer keys; V4.1 has KeyNorm and computes keys from entries instead
	Key        kernel.Matrix
	KeyNorm    kernel.Tensor // f32 [1, 128]
}

// Cache is the paged memory of one layer. A page has the same number in Extra and Index, for the same range of tokens.
// Window and Tails have window pages, which are numbered separately.
type Cache struct {
	Window kernel.Pool // an entry for each token
	Extra  kernel.Pool // an entry for each group; not given for ratio 0
	Index  kernel.Pool // an indexer key for each group; given for ratio 4
	Tails  Rings       // the last TailRows raw rows of each window page; given for ratio 4
}

// TailRows is the number of raw rows at the end of a page from which the first entry of the next page is computed: an
// entry of ratio 4 also depends on the previous group. Entries of ratio 128 depend only on their own group, which is
// within a page.
const TailRows = IndexRatio

// Layouts are the byte layouts of a cache.
type Layouts struct{ Entry, Index layout.Kind }

// Attention is the attention of one model on one device. One goroutine uses it at a time.
type Attention struct {
	list       *kernel.Builder
	act        kernel.DType
	params     Params
	scale      float32
	index      attn.Indexer
	main, far  kernel.Tensor // f32 [1, rope/2]
	used       map[int]bool  // ratios that at least one layer has
	States     *States
	rawWidth   map[int]int // width of the compressor's raw rows, by ratio
	indexWidth int
}

// New prepares attention for a model whose passes are made by the builder.
func New(dev kernel.Device, list *kernel.Builder, p Params, layers []*Weights) (*Attention, error) {
	a := &Attention{list: list, act: dev.Activation(), params: p, used: map[int]bool{}, rawWidth: map[int]int{},
		// The attention scale does not include the factor of YaRN, because query heads are normalised.
		scale: float32(1 / math.Sqrt(float64(p.Dim))),
		// The rotated half of a head is the last one; query scales are not rounded to powers of two (v4 spec, 2.5).
		index: attn.Indexer{Heads: p.IndexHeads, TopK: p.TopK, Offset: layout.IndexDim - layout.RopeDim,
			Pairing: kernel.Interleaved, Scales: num.ScaleF32, Plain: p.BlockKeys > 0, Block: p.BlockKeys}}
	for _, w := range layers {
		a.used[w.Ratio] = true
		if w.Compress != nil {
			a.rawWidth[w.Ratio] = w.Compress.width()
		}
		if w.Index != nil && w.Index.Compress.Values != nil {
			a.indexWidth = w.Index.Compress.width()
		}
	}
	for _, f := range []struct {
		to   *kernel.Tensor
		from []float32
	}{{&a.main, p.MainFreq}, {&a.far, p.FarFreq}} {
		t, err := kernel.New(dev, kernel.F32, 1, len(f.from))
		if err == nil {
			err = kernel.WriteF32(dev, t, f.from)
		}
		if err != nil {
			return nil, fmt.Errorf("dual: %w", err)
		}
		*f.to = t
	}
	a.States = newStates(dev, layers)
	return a, nil
}

// Pass is the attention of every layer in one forward pass, with its tensors in the arena. T is the number of rows for
// which the rank computes attention: all rows of the pass, unless ranks divide attention by requests.
type Pass struct {
	*Attention
	plan *plan.Plan
	own  plan.Share

	inputArrays[kernel.Tensor]
	closing map[int]*closing

	mainAngles, farAngles kernel.Tensor // f32 [T, 64]
	selected              kernel.Tensor // i32 [T, K]: groups of ratio 4 that the latest indexer selected
	scores                kernel.Tensor // f32 [T, K]: scores of selected, if they are recorded
	all                   selection     // selection for all rows of the pass; selected and scores are the rank's part
	tap                   attn.Tap      // tap of the layer in progress
	projected             projected
	raw                   map[int]rawRows // raw rows of the compressor, by ratio
	key                   rawRows         // raw rows of the indexer's compressor
	launches              []launch
	// Kept is the arena's mark after the tensors that later layers read. Other parts of a layer may use the memory
	// after the mark.
	Kept int64

	fill filler
}

// selection holds the selected groups, i32 [rows of the pass, K], and their scores, f32, if they are recorded.
type selection struct{ groups, scores kernel.Tensor }

// closing holds the tensors for the groups of one ratio that are completed in a pass, in the rank's sequences.
type closing struct {
	closingArrays[kernel.Tensor]
	angles  kernel.Tensor // f32 [n, 64]: cosines and sines of the groups' first positions
	entries kernel.Tensor // [n, dim]
	keys    kernel.Tensor // [n, 128]: indexer keys
}

// rawRows holds the rows from which compressed entries are computed, f32 [T, 2*halves*dim]: values, then gates.
type rawRows struct{ kernel.Tensor }

func (r rawRows) values() kernel.Tensor { return r.Columns(0, r.Cols/2) }
func (r rawRows) gates() kernel.Tensor  { return r.Columns(r.Cols/2, r.Cols) }

// projected holds the tensors that the attention of a layer reads and writes, with all rows of the rank.
type projected struct {
	q   kernel.Tensor // [T, heads*dim], rotated
	qr  kernel.Tensor // [T, q_lora]
	kv  kernel.Tensor // [T, dim]
	out kernel.Tensor // [T, heads*dim]
	z   kernel.Tensor // [T, groups*o_lora]
	// Raw indexer queries and head weights of all rows, if the plan computes them in one product.
	joint attn.Queries
}

// launch is one launch of a segment: the range [first, last) of the rank's rows, and the tensors of the launch.
type launch struct {
	segment               *plan.Segment
	stage                 string // stage of the launch's operations, for errors
	first, last           int
	window, groups, heavy kernel.Tensor // i32 [n, 1]: slots that the launch gathers
	space                 attn.IndexSpace
	indices               kernel.Tensor         // i32 [n, K]: slots of the selected groups, or rows of the workspace
	workspace             kernel.Tensor         // gathered entries: first window entries, then compressed entries
	combined              map[int]kernel.Tensor // i32 [n, width]: workspace rows that each row attends to, by ratio
	lengths               kernel.Tensor         // i32 [n, 1]: number of valid indices of each row
}

// Arrange takes the tensors of a pass from an arena.
func (a *Attention) Arrange(p *plan.Plan, in attn.Inputs, mem *kernel.Arena, l Layouts) (*Pass, error) {
	own := p.Share(a.list.Ranks().Rank)
	t := own.Rows
	s := &Pass{Attention: a, plan: p, own: own, inputArrays: inputArraysOf(in.Array),
		closing: map[int]*closing{}, raw: map[int]rawRows{}}
	for _, x := range []*kernel.Tensor{&s.request, &s.position, &s.slots, &s.windowLen, &s.groups, &s.kept, &s.heavyLen,
		&s.windowBase, &s.groupBase, &s.heavyBase, &s.groupStart, &s.window, &s.heavy} {
		*x = s.rows(*x)
	}
	s.mainAngles, s.farAngles = mem.Take(kernel.F32, t, 2*a.main.Cols), mem.Take(kernel.F32, t, 2*a.far.Cols)
	s.all.groups = mem.Take(kernel.I32, p.Rows, a.params.TopK)
	s.selected = s.rows(s.all.groups)
	if p.Record.Scores {
		s.all.scores = mem.Take(kernel.F32, p.Rows, a.params.TopK)
		s.scores = s.rows(s.all.scores)
	}
	for _, ratio := range []int{IndexRatio, HeavyRatio} {
		if a.used[ratio] {
			s.arrangeClosing(ratio, in, mem)
		}
	}
	s.Kept = mem.Mark()
	s.projected.arrange(a, mem, t)
	if p.JointQueries {
		s.projected.joint = a.index.TakeQueries(mem, a.act, t)
	}
	s.key = takeRaw(mem, t, a.indexWidth)
	mark, high := mem.Mark(), mem.Mark()
	for ratio, width := range a.rawWidth {
		mem.Reset(mark)
		s.raw[ratio] = takeRaw(mem, t, width)
		high = max(high, mem.Mark())
	}
	for i := range p.Segments {
		g := &p.Segments[i]
		if g.Layout.String() != l.Entry.String() {
			return nil, plan.ErrLayout(g.Layout.String(), l.Entry.String())
		}
		if p.Shares != nil && g.Rank != a.list.Ranks().Rank {
			continue
		}
		for j := range g.Launches {
			mem.Reset(high)
			x, err := s.arrangeLaunch(g, &g.Launches[j], mem, l)
			if err != nil {
				return nil, err
			}
			if x.first < x.last { // no kernel runs if all rows are padding
				s.launches = append(s.launches, x)
			}
		}
	}
	return s, nil
}

// rows returns the rank's rows of a tensor that has all rows of the pass.
func (s *Pass) rows(t kernel.Tensor) kernel.Tensor {
	return attn.OwnRows(t, s.own.FirstRow, s.own.Rows)
}

func takeRaw(mem *kernel.Arena, rows, width int) rawRows {
	return rawRows{mem.Take(kernel.F32, rows, 2*width)}
}

func (x *projected) arrange(a *Attention, mem *kernel.Arena, rows int) {
	p := &a.params
	latents := mem.Take(a.act, rows, p.QLora+p.Dim) // adjacent columns: a device may compute both in one product
	x.qr, x.kv = latents.Columns(0, p.QLora), latents.Columns(p.QLora, p.QLora+p.Dim)
	x.q = mem.Take(a.act, rows, p.Heads*p.Dim)
	x.out, x.z = mem.Take(a.act, rows, p.Heads*p.Dim), mem.Take(a.act, rows, p.OGroups*p.OLora)
}

func (s *Pass) arrangeClosing(ratio int, in attn.Inputs, mem *kernel.Arena) {
	c, closes := &closing{closingArrays: closingOf(ratio, in.Array)}, s.own.Heavy
	if ratio == IndexRatio {
		closes = s.own.Light
	}
	for _, x := range []*kernel.Tensor{&c.sources, &c.slots, &c.place} {
		*x = attn.OwnRows(*x, closes.First, closes.Count)
	}
	c.keep, c.tail = s.rows(c.keep), s.rows(c.tail)
	if ratio == IndexRatio {
		c.keys = mem.Take(s.act, c.slots.Rows, layout.IndexDim)
	}
	c.angles, c.entries = mem.Take(kernel.F32, c.slots.Rows, 2*s.far.Cols), mem.Take(s.act, c.slots.Rows, s.params.Dim)
	s.closing[ratio] = c
}

// arrangeLaunch takes the tensors of one launch from the arena. Selection and attention use the same memory, because
// selection ends before attention begins.
func (s *Pass) arrangeLaunch(g *plan.Segment, l *plan.Launch, mem *kernel.Arena, kinds Layouts) (x launch,
	err error) {
	x.segment, x.stage = g, fmt.Sprintf("attention of %v rows", g.Row)
	x.first, x.last = attn.LaunchRows(g, l)
	x.first, x.last = x.first-s.own.FirstRow, x.last-s.own.FirstRow
	n := x.last - x.first
	x.window = s.gatherWindow.Slice(l.Gather.First, l.Gather.End())
	x.groups = s.gatherGroups.Slice(l.Groups.First, l.Groups.End())
	x.heavy = s.gatherHeavy.Slice(l.Heavy.First, l.Heavy.End())
	mark := mem.Mark()
	if s.used[IndexRatio] {
		if x.space, err = s.index.Arrange(mem, s.plan, g, l, kinds.Index, s.act); err != nil {
			return x, err
		}
	}
	mem.Reset(mark)
	switch g.Form {
	case plan.FormV4Paged:
		x.indices = mem.Take(kernel.I32, n, s.params.TopK)
	case plan.FormV4SparsePrefill:
		kind := kernel.BF16 // 584-byte entries are exact in bf16
		if kinds.Entry == layout.V4F32Row2048 {
			kind = kernel.F32
		}
		x.workspace = mem.Take(kind, l.Gather.Count+max(l.Groups.Count, l.Heavy.Count), layout.V4Dim)
		x.lengths, x.combined = mem.Take(kernel.I32, n, 1), map[int]kernel.Tensor{}
		// The ratios are in a fixed order, so that addresses depend only on the plan.
		for _, c := range [...]struct {
			ratio, width int
		}{{0, 0}, {IndexRatio, s.selected.Cols}, {HeavyRatio, s.heavy.Cols}} {
			x.combined[c.ratio] = mem.Take(kernel.I32, n, roundUp(s.window.Cols+c.width, kernel.CombineWidth))
		}
	default:
		err = fmt.Errorf("dual: this attention does not support form %v", g.Form)
	}
	return x, err
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// Begin adds the operations whose results every layer reads: the rotation angles of rows and of completed groups.
func (s *Pass) Begin() {
	if s.own.Rows == 0 {
		return
	}
	s.list.Add(kernel.AngleArgs{Out: s.mainAngles, Positions: s.position, InvFreq: s.main, Scale: 1})
	s.list.Add(kernel.AngleArgs{Out: s.farAngles, Positions: s.position, InvFreq: s.far, Scale: 1})
	for _, ratio := range [...]int{IndexRatio, HeavyRatio} {
		if c := s.closing[ratio]; c != nil && c.slots.Rows > 0 {
			s.list.Add(kernel.AngleArgs{Out: c.angles, Positions: c.place, InvFreq: s.far, Scale: 1})
		}
	}
}

// Layer writes the attention output of a layer for x, normalised rows of the pass in plan order, to out. With several
// ranks, out is then complete on all ranks. tap records or replaces the layer's selection.
func (s *Pass) Layer(layer int, w *Weights, c Cache, out, x kernel.Tensor, tap attn.Tap) {
	s.tap = tap
	if s.own.Rows > 0 {
		s.attendOwn(layer, w, c, s.rows(out), s.rows(x))
	}
	if w.Index != nil {
		s.tap.Record(s.list, s.all.groups, s.all.scores, s.plan.RowBounds)
	}
	attn.Join(s.list, out, s.plan.RowBounds)
}

// attendOwn writes the attention output of the rank's rows. It first stores all new rows of the pass in the caches, so
// that a query whose token completes a group attends to the new entry.
func (s *Pass) attendOwn(layer int, w *Weights, c Cache, out, x kernel.Tensor) {
	angles := s.farAngles
	if w.Ratio == 0 {
		angles = s.mainAngles
	}
	p := &s.projected
	var to []kernel.Projection
	var then func()
	if w.Compress != nil {
		to = rawProducts(to, s.raw[w.Ratio], w.Compress)
		then = func() { s.closeAll(layer, w) }
	}
	if w.Index != nil {
		to = rawProducts(to, s.key, &w.Index.Compress)
	}
	s.project(p, w, projection{window: c.Window, x: x, angles: angles, slots: s.slots, to: to, then: then,
		joint: w.Index != nil && s.plan.JointQueries})
	s.compress(layer, w, c)
	for i := range s.launches {
		l := &s.launches[i]
		s.list.At(l.stage, layer)
		if w.Index != nil {
			s.choose(l, w.Index, c, x, angles)
		}
		if l.segment.Form == plan.FormV4Paged {
			s.paged(l, w, c)
		} else {
			s.flat(l, w, c)
		}
	}
	s.list.At("attention", layer)
	s.output(p, w, out, angles)
}

func rawProducts(to []kernel.Projection, r rawRows, c *Compressor) []kernel.Projection {
	return append(to, kernel.Projection{Out: r.values(), W: c.Values}, kernel.Projection{Out: r.gates(), W: c.Gates})
}

// choose selects groups for the rows of the launch, by the plan's indexer path. Groups are numbered from the beginning
// of the sequence. The indexer key of a group has the slot of the group's entry.
func (s *Pass) choose(l *launch, x *Index, c Cache, hidden, angles kernel.Tensor) {
	s.index.Select(s.list, &attn.Selection{
		Plan: l.segment, Space: &l.space, First: l.first, Last: l.last,
		Q: x.Q, W: x.Weights, Latent: s.projected.qr, Hidden: hidden, Computed: s.projected.joint, Angles: angles,
		Out: s.selected, Values: s.scores, Lens: s.groups, Cache: c.Index,
		Table: s.table, Request: s.request, Gather: l.groups, Start: s.groupStart,
	})
	s.tap.Replace(s.list, s.all.groups)
}
