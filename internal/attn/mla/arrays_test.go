package mla

import (
	"errors"
	"slices"
	"testing"

	"sparrow/internal/attn"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// facts returns the plan's description of a model that selects four keys, so that a small batch has dense and sparse
// rows.
func facts() plan.Model {
	return plan.Model{Family: plan.GLMMoeDSA, Heads: 2, K: 4, IndexHeads: 4, QKDim: 256, VDim: 256, Layers: 4,
		Context: 1000, LayerSupportsDense: true, Share: plan.LayerShare{Types: []bool{false, false, true, true}}}
}

func resolve(t *testing.T, p plan.Policy) plan.Config {
	t.Helper()
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, facts(), p)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Page = 4 // engines use pages of 64 tokens
	return cfg
}

// batchOf plans a batch over pages of four tokens.
func batchOf(t *testing.T, p plan.Policy, b plan.Batch, tables ...[]int32) attn.Batch {
	t.Helper()
	cfg := resolve(t, p)
	built, err := plan.Build(cfg, b)
	if err != nil {
		t.Fatal(err)
	}
	return attn.Batch{Plan: built, Config: &cfg, Batch: &b, Tables: tables, PageTokens: cfg.Page}
}

// recut returns the batch with other launches in segment i of its plan, and with arrays of the lengths that these
// launches need.
func recut(b attn.Batch, i int, launches ...plan.Launch) attn.Batch {
	cut := *b.Plan
	cut.Segments = slices.Clone(cut.Segments)
	cut.Segments[i].Launches = launches
	rows := map[plan.ArrayName]int{}
	for _, s := range cut.Segments {
		for _, l := range s.Launches {
			rows[plan.GatherSlots] = max(rows[plan.GatherSlots], l.Gather.End())
			rows[plan.IndexSlots] = max(rows[plan.IndexSlots], l.Index.End())
		}
	}
	cut.Inputs, cut.InputWords = slices.Clone(cut.Inputs), 0
	for i := range cut.Inputs {
		a := &cut.Inputs[i]
		if n, ok := rows[a.Name]; ok {
			a.Rows = n
		}
		a.First = cut.InputWords
		cut.InputWords += a.Words()
	}
	b.Plan = &cut
	return b
}

// arrange lays out a pass over a cache of given layouts, in a separate arena.
func (r *rig) arrange(b *attn.Batch, l Layouts) (*Pass, attn.Inputs, error) {
	r.Helper()
	var pass *Pass
	var in attn.Inputs
	mem, err := kernel.MeasureArena(), error(nil)
	for range 2 { // the first iteration measures the needed memory
		in = attn.TakeInputs(b.Plan, mem)
		if pass, err = r.a.Arrange(b.Plan, b.Config, in, mem, l); err != nil {
			return nil, in, err
		}
		if mem, err = kernel.NewArena(r.dev, mem.High()); err != nil {
			r.Fatal(err)
		}
	}
	return pass, in, nil
}

// arrays holds the arrays of a filled input block by name.
type arrays struct {
	request, position, slots, lens, kept, table []int32
	start, gather, indexStart, index            []int32
	pages, tables                               []int32
}

// prepared lays out a batch over a cache of its configuration's layout and fills its input block, which contained other
// values before.
func prepared(t *testing.T, b attn.Batch) (*Pass, arrays, error) {
	t.Helper()
	r := newRig(t)
	kind, err := layout.ParseKind(b.Config.Layout.String())
	if err != nil {
		t.Fatal(err)
	}
	pass, _, err := r.arrange(&b, Layouts{kind, layout.IndexPage132})
	if err != nil {
		t.Fatal(err)
	}
	words := slices.Repeat([]int32{-77}, b.Plan.InputWords)
	block := attn.NewBlock(b.Plan, words)
	err = pass.Prepare(&b, block)
	return pass, arrays{
		request: block.Array(plan.RowRequests), position: block.Array(plan.Positions), slots: block.Array(plan.Slots),
		lens: block.Array(plan.Lengths), kept: block.Array(plan.Kept), table: block.Array(plan.PageTable),
		start: block.Array(plan.GatherStart), gather: block.Array(plan.GatherSlots),
		indexStart: block.Array(plan.IndexStart), index: block.Array(plan.IndexSlots),
		pages: block.Array(plan.ConvertPages), tables: block.Array(plan.ConvertTables),
	}, err
}

// fill calls prepared and fails the test if the batch is refused.
func fill(t *testing.T, b attn.Batch) (*Pass, arrays) {
	t.Helper()
	pass, h, err := prepared(t, b)
	if err != nil {
		t.Fatal(err)
	}
	return pass, h
}

// mixed is, with pages of four tokens:
//
//	request 0  a prompt of 6 tokens pages 5 2 rows 0-3 see at most 4 keys: dense; rows 4 and 5 are sparse
//	request 1  a decode, the 9th token           pages 7 1 3
//	request 2  a verify of 2 after 5 tokens      pages 4 6
//	request 3  3 tokens after a prefix of 5      pages 5 9    shares page 5 with request 0; all sparse
func mixed(t *testing.T, p plan.Policy) attn.Batch {
	b := plan.NewBatch(plan.ModeMixed, plan.ExtendRequest(6, 0), plan.DecodeRequest(9), plan.VerifyRequest(2, 5),
		plan.ExtendRequest(3, 5))
	return batchOf(t, p, b, []int32{5, 2}, []int32{7, 1, 3}, []int32{4, 6}, []int32{5, 9})
}

func ints(t *testing.T, what string, got []int32, want ...int32) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s\n got %v\nwant %v", what, got, want)
	}
}

// rowsOfMixed checks what every layout of the mixed batch has in common. Rows are ordered by segment: dense prompt
// rows, sparse prompt rows, decode, verify.
func rowsOfMixed(t *testing.T, h arrays) {
	t.Helper()
	ints(t, "request", h.request, 0, 0, 0, 0 /**/, 0, 0, 3, 3, 3 /**/, 1 /**/, 2, 2)
	ints(t, "position", h.position, 0, 1, 2, 3 /**/, 4, 5, 5, 6, 7 /**/, 8 /**/, 5, 6)
	// A slot is page*4 + position%4. Request 0 is in pages 5 and 2, request 3 in page 9, request 1 in page 3, and
	// request 2 in page 6.
	ints(t, "slots", h.slots, 20, 21, 22, 23 /**/, 8, 9, 37, 38, 39 /**/, 12 /**/, 25, 26)
	ints(t, "keys seen", h.lens, 1, 2, 3, 4 /**/, 5, 6, 6, 7, 8 /**/, 9 /**/, 6, 7)
	ints(t, "keys kept", h.kept, 1, 2, 3, 4 /**/, 4, 4, 4, 4, 4 /**/, 4 /**/, 4, 4)
	// The batch needs three pages per row; the plan's width is a power of two.
	ints(t, "table", h.table, 5, 2, 0, 0, 7, 1, 3, 0, 4, 6, 0, 0, 5, 9, 0, 0)
	// The indexer of the sparse prompt rows gathers 6 keys of request 0, then 8 of request 3.
	ints(t, "index start", h.indexStart, 0, 0, 0, 0 /**/, 0, 0, 6, 6, 6 /**/, 0 /**/, 0, 0)
}

// These are the slots of the keys of requests 0 and 3, in order.
var (
	keys0 = []int32{20, 21, 22, 23, 8, 9}
	keys3 = []int32{20, 21, 22, 23, 36, 37, 38, 39}
)

// Pages that are converted are listed request by request, and the tables point at the converted copies. A page that two
// requests share is listed for each of them: the plan fixes the number of pages, and it does not depend on sharing.
func TestArraysWithConvertedPages(t *testing.T) {
	in := mixed(t, plan.Policy{KV: "fp8-576", Prefill: "sparse-block", Decode: "sparse-raw"})
	pass, h := fill(t, in)
	rowsOfMixed(t, h)
	ints(t, "start", h.start, make([]int32, 12)...)
	ints(t, "gathered", h.gather, 20, 21, 22, 23)
	ints(t, "gathered keys", h.index, slices.Concat(keys0, keys3)...)
	ints(t, "converted pages", h.pages, 5, 2, 5, 9)
	// The tables of the four requests are four pages wide. Request 0 uses copies 0 and 1, request 3 uses copies 2 and
	// 3.
	tables := []int32{0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 3, 0, 0}
	ints(t, "tables over converted pages", h.tables, tables...)
	type parts struct{ gather, index, pages, tables plan.Run }
	want := []parts{
		// Segment of dense prompt rows.
		{gather: plan.Run{First: 0, Count: 4}},
		{index: plan.Run{Count: 14}, pages: plan.Run{Count: 4}, tables: plan.Run{Count: 4}}, // sparse prompt rows
		{}, // segment of the decode
		{}, // segment of the verification
	}
	for i, s := range in.Plan.Segments {
		l := s.Launches[0]
		if got := (parts{l.Gather, l.Index, l.Pages, l.Tables}); len(s.Launches) != 1 || got != want[i] {
			t.Errorf("segment %d: parts\n got %+v\nwant %+v", i, got, want[i])
		}
	}
	// The arrays are equal if the block contained the arrays of another pass before.
	words := slices.Repeat([]int32{-5}, in.Plan.InputWords)
	again := attn.NewBlock(in.Plan, words)
	if err := pass.Prepare(&in, again); err != nil {
		t.Fatal(err)
	}
	ints(t, "slots, second time", again.Array(plan.Slots), h.slots...)
	ints(t, "converted pages, second time", again.Array(plan.ConvertPages), 5, 2, 5, 9)
	ints(t, "tables, second time", again.Array(plan.ConvertTables), tables...)
}

// The start of a gathered row is the index of its request's first key among the keys that its launch gathers.
func TestArraysWithGatheredRows(t *testing.T) {
	in := mixed(t, plan.Policy{KV: "fp8-656", Prefill: "sparse-flat"})
	_, h := fill(t, in)
	rowsOfMixed(t, h)
	ints(t, "start", h.start, 0, 0, 0, 0 /**/, 0, 0, 6, 6, 6 /**/, 0 /**/, 0, 0)
	ints(t, "gathered", h.gather, slices.Concat([]int32{20, 21, 22, 23}, keys0, keys3)...)
	ints(t, "gathered keys", h.index, slices.Concat(keys0, keys3)...)
	ints(t, "converted pages", h.pages)

	// The first launch has 3 rows and gathers 6 keys of request 0 and 6 of request 3. The second has 2 rows and gathers
	// 8 keys of request 3.
	_, h = fill(t, recut(in, 1,
		plan.Launch{FirstRow: 0, Rows: 3, Gather: plan.Run{First: 4, Count: 12}, Index: plan.Run{First: 0, Count: 12}},
		plan.Launch{FirstRow: 3, Rows: 2, Gather: plan.Run{First: 16, Count: 8}, Index: plan.Run{First: 12, Count: 8}}))
	ints(t, "start in two launches", h.start, 0, 0, 0, 0 /**/, 0, 0, 6, 0, 0 /**/, 0 /**/, 0, 0)
	ints(t, "index start in two launches", h.indexStart, 0, 0, 0, 0 /**/, 0, 0, 6, 0, 0 /**/, 0 /**/, 0, 0)
	// Each launch gathers rows, and keys for its indexer.
	ints(t, "gathered in two launches", h.gather, slices.Concat([]int32{20, 21, 22, 23}, keys0, keys3[:6], keys3)...)
	ints(t, "keys gathered in two launches", h.index, slices.Concat(keys0, keys3[:6], keys3)...)
}

// Over bf16 pages attention gathers nothing; only dense rows and the ragged indexer gather.
func TestArraysOverPagesReadInPlace(t *testing.T) {
	_, h := fill(t, mixed(t, plan.Policy{KV: "bf16"}))
	rowsOfMixed(t, h)
	ints(t, "start", h.start, make([]int32, 12)...)
	ints(t, "gathered", h.gather, 20, 21, 22, 23)
	ints(t, "gathered keys", h.index, slices.Concat(keys0, keys3)...)
	ints(t, "converted pages", h.pages)
}

// A request of length 0 is padding: its rows store no key and attend to no key. Positions before the sequence count as
// 0. Padded rows of the kernel are not rows of the pass.
func TestArraysOfPaddedBatches(t *testing.T) {
	b := plan.NewBatch(plan.ModeDecode, plan.DecodeRequest(5), plan.DecodeRequest(0))
	b.PaddedRows = 4
	in := batchOf(t, plan.Policy{KV: "bf16"}, b, []int32{3, 1}, nil)
	pass, h := fill(t, in)
	ints(t, "slots", h.slots, 4, -1)
	ints(t, "position", h.position, 4, 0)
	ints(t, "keys seen", h.lens, 5, 0)
	if got := in.Plan.Segments[0].KernelRows; got != 4 {
		t.Fatalf("the kernel sees %d rows, want 4", got)
	}
	if l := pass.launches; len(l) != 1 || l[0].first != 0 || l[0].last != 2 {
		t.Errorf("launch covers rows %+v, want 0 to 2", l)
	}

	// If the pass is cut into launches of one row, the last two launches contain only padding and are omitted.
	pass, _ = fill(t, recut(in, 0, plan.Launch{FirstRow: 0, Rows: 1}, plan.Launch{FirstRow: 1, Rows: 1},
		plan.Launch{FirstRow: 2, Rows: 1},
		plan.Launch{FirstRow: 3, Rows: 1}))
	if l := pass.launches; len(l) != 2 || l[1].first != 1 || l[1].last != 2 {
		t.Errorf("launches cover rows %+v, want rows 0 and 1", l)
	}

	in = batchOf(t, plan.Policy{KV: "bf16"}, plan.NewBatch(plan.ModeDraft, plan.DraftRequest(2, 0),
		plan.DraftRequest(2, 1), plan.DraftRequest(2, 6)),
		nil, []int32{2}, []int32{7, 8})
	_, h = fill(t, in)
	ints(t, "draft slots", h.slots, -1, -1, -1, 8, 32, 33)
	ints(t, "draft positions", h.position, 0, 0, 0, 0, 4, 5)
	ints(t, "keys drafts see", h.lens, 0, 0, 0, 1, 5, 6)

	// The rows of a verify request begin after its cached tokens. If the request is padding, it has no rows there, and
	// its positions are before its cached tokens.
	in = batchOf(t, plan.Policy{KV: "bf16"}, plan.NewBatch(plan.ModeVerify, plan.VerifyRequest(2, 5),
		plan.Request{N: 2, Padding: true}), []int32{3, 1}, nil)
	_, h = fill(t, in)
	ints(t, "verified slots", h.slots, 5, 6, -1, -1)
	ints(t, "verified positions", h.position, 5, 6, 0, 0)
	ints(t, "keys verified rows see", h.lens, 6, 7, 0, 0)
}

func TestPrepareErrors(t *testing.T) {
	short := mixed(t, plan.Policy{KV: "bf16"})
	short.Tables[1] = []int32{7, 1}
	_, _, err := prepared(t, short)
	if !errors.Is(err, plan.E22) {
		t.Errorf("a request of 9 tokens in two pages of 4: got %v, want E22", err)
	}
	var pe *plan.Error
	if errors.As(err, &pe) && pe.Asked != "request 1, which needs 3 pages, with 2" {
		t.Errorf("the error reports %q as requested", pe.Asked)
	}
	for name, damage := range map[string]func(*plan.Segment){
		"a gap between segments":        func(s *plan.Segment) { s.FirstRow++ },
		"spans that hold fewer rows":    func(s *plan.Segment) { s.Spans = s.Spans[:1] },
		"a segment with a row too many": func(s *plan.Segment) { s.Rows++ },
	} {
		in := mixed(t, plan.Policy{KV: "bf16"})
		bad := *in.Plan
		bad.Segments = slices.Clone(in.Plan.Segments)
		damage(&bad.Segments[1])
		in.Plan = &bad
		if _, _, err := prepared(t, in); !errors.Is(err, plan.E26) {
			t.Errorf("%s: got %v, want E26", name, err)
		}
	}
}

// Each launch has views of its own part of the input block in the device's memory.
func TestLaunchesViewTheirPart(t *testing.T) {
	b := mixed(t, plan.Policy{KV: "fp8-576", Prefill: "sparse-block", Decode: "sparse-raw"})
	r := newRig(t)
	pass, in, err := r.arrange(&b, Layouts{layout.FP8Row576, layout.IndexPage132})
	if err != nil {
		t.Fatal(err)
	}
	words := make([]int32, b.Plan.InputWords)
	if err := pass.Prepare(&b, attn.NewBlock(b.Plan, words)); err != nil {
		t.Fatal(err)
	}
	if err := kernel.WriteI32(r.dev, in.Block, words); err != nil {
		t.Fatal(err)
	}
	if len(pass.launches) != 4 {
		t.Fatalf("%d launches, want 4", len(pass.launches))
	}
	read := func(x kernel.Tensor) []int32 {
		v := make([]int32, x.Rows*x.Cols)
		if err := kernel.ReadI32(r.dev, v, x); err != nil {
			t.Fatal(err)
		}
		return v
	}
	ints(t, "keys of the dense launch", read(pass.launches[0].gather), 20, 21, 22, 23)
	ints(t, "pages of the sparse launch", read(pass.launches[1].pages), 5, 2, 5, 9)
	ints(t, "tables of the sparse launch", read(pass.launches[1].table), 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 3, 0, 0)
	ints(t, "index keys of the sparse launch", read(pass.launches[1].indexSlots), slices.Concat(keys0, keys3)...)
	// Dense rows are not scored; paged scores are as wide as the table's four pages of four tokens.
	for i, want := range [][3]int{{0, 4, 0}, {4, 9, 8}, {9, 10, 16}, {10, 12, 16}} {
		l := pass.launches[i]
		if width := l.segment.Indexer.ScoreWidth; l.first != want[0] || l.last != want[1] || width != want[2] {
			t.Errorf("launch %d: rows %d to %d, scores %d wide; want %v", i, l.first, l.last, width, want)
		}
		if i != 1 && l.table.Given() {
			t.Errorf("launch %d has a table over converted pages", i)
		}
	}
}
