package attn

import (
	"errors"
	"slices"
	"testing"

	"sparrow/kernel"
	"sparrow/plan"
)

// facts is a model that keeps four keys, so that a hand-sized batch has dense and sparse rows.
func facts() plan.Model {
	return plan.Model{Family: plan.GLMMoeDSA, Heads: 2, K: 4, IndexHeads: 4, QKDim: 256, VDim: 256, Layers: 4, Context: 1000,
		LayerSupportsDense: true, Share: plan.LayerShare{Types: []bool{false, false, true, true}}}
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
	return cfg
}

// stepOf plans a batch over pages of four tokens.
func stepOf(t *testing.T, p plan.Policy, b plan.Batch, tables ...[]int32) Step {
	t.Helper()
	cfg := resolve(t, p)
	built, err := plan.Build(cfg, b)
	if err != nil {
		t.Fatal(err)
	}
	return Step{Plan: built, Config: &cfg, Batch: &b, Tables: tables, PageTokens: 4}
}

// mixed is, with pages of four tokens:
//
//	request 0  a prompt of 6 tokens              pages 5 2    rows 0-3 see at most 4 keys: dense; rows 4 and 5 are sparse
//	request 1  a decode, the 9th token           pages 7 1 3
//	request 2  a verify of 2 after 5 tokens      pages 4 6
//	request 3  3 tokens after a prefix of 5      pages 5 9    shares page 5 with request 0; all sparse
func mixed(t *testing.T, p plan.Policy) Step {
	b := plan.NewBatch(plan.ModeMixed, plan.ExtendRequest(6, 0), plan.DecodeRequest(9), plan.VerifyRequest(2, 5), plan.ExtendRequest(3, 5))
	return stepOf(t, p, b, []int32{5, 2}, []int32{7, 1, 3}, []int32{4, 6}, []int32{5, 9})
}

func ints(t *testing.T, what string, got []int32, want ...int32) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s\n got %v\nwant %v", what, got, want)
	}
}

// rowsOfMixed is what every layout of the mixed batch has in common. Rows come segment by segment: dense prompt rows, sparse prompt rows,
// decode, verify.
func rowsOfMixed(t *testing.T, h *hostArrays) {
	t.Helper()
	ints(t, "request", h.request, 0, 0, 0, 0 /**/, 0, 0, 3, 3, 3 /**/, 1 /**/, 2, 2)
	ints(t, "position", h.position, 0, 1, 2, 3 /**/, 4, 5, 5, 6, 7 /**/, 8 /**/, 5, 6)
	// page*4 + position%4: request 0 is in pages 5 and 2, request 3 in page 9, request 1 in page 3, request 2 in page 6.
	ints(t, "slots", h.slots, 20, 21, 22, 23 /**/, 8, 9, 37, 38, 39 /**/, 12 /**/, 25, 26)
	ints(t, "keys seen", h.lens, 1, 2, 3, 4 /**/, 5, 6, 6, 7, 8 /**/, 9 /**/, 6, 7)
	ints(t, "keys kept", h.kept, 1, 2, 3, 4 /**/, 4, 4, 4, 4, 4 /**/, 4 /**/, 4, 4)
	ints(t, "table", h.table, 5, 2, 0, 7, 1, 3, 4, 6, 0, 5, 9, 0)
	// The indexer of the sparse prompt rows gathers 6 keys of request 0, then 8 of request 3.
	ints(t, "index start", h.indexStart, 0, 0, 0, 0 /**/, 0, 0, 6, 6, 6 /**/, 0 /**/, 0, 0)
}

// keys of requests 0 and 3 as slots, in order.
var (
	keys0 = []int32{20, 21, 22, 23, 8, 9}
	keys3 = []int32{20, 21, 22, 23, 36, 37, 38, 39}
)

// Pages that are converted are listed once although two requests share one, and the tables point at the converted copies.
func TestArraysWithConvertedPages(t *testing.T) {
	var h hostArrays
	in := mixed(t, plan.Policy{KV: "fp8-576", Prefill: "sparse-block", Decode: "sparse-raw"})
	if err := h.fill(in, 4); err != nil {
		t.Fatal(err)
	}
	rowsOfMixed(t, &h)
	ints(t, "start", h.start, make([]int32, 12)...)
	ints(t, "gathered", h.flat, slices.Concat([]int32{20, 21, 22, 23}, keys0, keys3)...)
	ints(t, "converted pages", h.pages, 5, 2, 9)
	// Rows of the four requests, three pages wide: request 0 is in copies 0 and 1, request 3 in 0 (shared) and 2.
	ints(t, "tables over converted pages", h.tables, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0)
	want := []mark{
		{flat: 0, flatEnd: 4, index: 4, indexEnd: 4, table: -1, width: 4},                            // dense prompt rows
		{flat: 4, flatEnd: 4, index: 4, indexEnd: 18, pagesEnd: 3, table: 0, width: 8},               // sparse prompt rows
		{flat: 18, flatEnd: 18, index: 18, indexEnd: 18, pages: 3, pagesEnd: 3, table: -1, width: 9}, // decode
		{flat: 18, flatEnd: 18, index: 18, indexEnd: 18, pages: 3, pagesEnd: 3, table: -1, width: 7}, // verify
	}
	if !slices.Equal(h.marks, want) {
		t.Errorf("marks\n got %+v\nwant %+v", h.marks, want)
	}
	// The same arrays again, in memory that holds another step's.
	if err := h.fill(in, 4); err != nil {
		t.Fatal(err)
	}
	rowsOfMixed(t, &h)
	ints(t, "converted pages, second time", h.pages, 5, 2, 9)
}

// Rows that are gathered start where their request's keys begin in what their own launch gathers.
func TestArraysWithGatheredRows(t *testing.T) {
	in := mixed(t, plan.Policy{KV: "fp8-656", Prefill: "sparse-flat"})
	var h hostArrays
	if err := h.fill(in, 4); err != nil {
		t.Fatal(err)
	}
	rowsOfMixed(t, &h)
	ints(t, "start", h.start, 0, 0, 0, 0 /**/, 0, 0, 6, 6, 6 /**/, 0 /**/, 0, 0)
	ints(t, "gathered", h.flat, slices.Concat([]int32{20, 21, 22, 23}, keys0, keys3, keys0, keys3)...)
	ints(t, "converted pages", h.pages)

	// Two launches of 3 and 2 rows: the first sees 6 keys of request 0 and 6 of request 3, the second 8 of request 3.
	cut := *in.Plan
	cut.Segments = slices.Clone(in.Plan.Segments)
	cut.Segments[1].Launches = []plan.Launch{{FirstRow: 0, Rows: 3}, {FirstRow: 3, Rows: 2}}
	in.Plan = &cut
	if err := h.fill(in, 4); err != nil {
		t.Fatal(err)
	}
	ints(t, "start in two launches", h.start, 0, 0, 0, 0 /**/, 0, 0, 6, 0, 0 /**/, 0 /**/, 0, 0)
	ints(t, "index start in two launches", h.indexStart, 0, 0, 0, 0 /**/, 0, 0, 6, 0, 0 /**/, 0 /**/, 0, 0)
	// Each launch gathers rows, then the keys of its indexer.
	ints(t, "gathered in two launches", h.flat, slices.Concat([]int32{20, 21, 22, 23}, keys0, keys3[:6], keys0, keys3[:6], keys3, keys3)...)
}

// Over bf16 pages nothing is gathered for attention; only dense rows and the ragged indexer gather.
func TestArraysOverPagesReadInPlace(t *testing.T) {
	var h hostArrays
	if err := h.fill(mixed(t, plan.Policy{KV: "bf16"}), 4); err != nil {
		t.Fatal(err)
	}
	rowsOfMixed(t, &h)
	ints(t, "start", h.start, make([]int32, 12)...)
	ints(t, "gathered", h.flat, slices.Concat([]int32{20, 21, 22, 23}, keys0, keys3)...)
	ints(t, "converted pages", h.pages)
}

// Padding: a request of length 0 stores nothing and sees nothing; positions before the sequence count as 0. Padded rows of the kernel are not
// rows of the step.
func TestArraysOfPaddedBatches(t *testing.T) {
	var h hostArrays
	b := plan.NewBatch(plan.ModeDecode, plan.DecodeRequest(5), plan.DecodeRequest(0))
	b.PaddedRows = 4
	in := stepOf(t, plan.Policy{KV: "bf16"}, b, []int32{3, 1}, nil)
	if err := h.fill(in, 4); err != nil {
		t.Fatal(err)
	}
	ints(t, "slots", h.slots, 4, -1)
	ints(t, "position", h.position, 4, 0)
	ints(t, "keys seen", h.lens, 5, 0)
	if got := in.Plan.Segments[0].KernelRows; got != 4 {
		t.Fatalf("the kernel sees %d rows, want 4", got)
	}
	seg := h.segments(nil, in, tensors{})
	if len(seg) != 1 || seg[0].launches[0].first != 0 || seg[0].launches[0].last != 2 {
		t.Errorf("launch covers rows %+v, want 0 to 2", seg[0].launches)
	}

	// Cut into launches of one row, the last two hold padding alone and are left out.
	cut := *in.Plan
	cut.Segments = slices.Clone(in.Plan.Segments)
	cut.Segments[0].Launches = []plan.Launch{{FirstRow: 0, Rows: 1}, {FirstRow: 1, Rows: 1}, {FirstRow: 2, Rows: 1}, {FirstRow: 3, Rows: 1}}
	in.Plan = &cut
	if err := h.fill(in, 4); err != nil {
		t.Fatal(err)
	}
	if seg = h.segments(nil, in, tensors{}); len(seg[0].launches) != 2 || seg[0].launches[1].first != 1 || seg[0].launches[1].last != 2 {
		t.Errorf("launches cover rows %+v, want rows 0 and 1", seg[0].launches)
	}

	in = stepOf(t, plan.Policy{KV: "bf16"}, plan.NewBatch(plan.ModeDraft, plan.DraftRequest(2, 0), plan.DraftRequest(2, 1), plan.DraftRequest(2, 6)), nil, []int32{2}, []int32{7, 8})
	if err := h.fill(in, 4); err != nil {
		t.Fatal(err)
	}
	ints(t, "draft slots", h.slots, -1, -1, -1, 8, 32, 33)
	ints(t, "draft positions", h.position, 0, 0, 0, 0, 4, 5)
	ints(t, "keys drafts see", h.lens, 0, 0, 0, 1, 5, 6)
}

func TestFillErrors(t *testing.T) {
	var h hostArrays
	short := mixed(t, plan.Policy{KV: "bf16"})
	short.Tables[1] = []int32{7, 1}
	err := h.fill(short, 4)
	if !errors.Is(err, plan.E22) {
		t.Errorf("a request of 9 tokens in two pages of 4: got %v, want E22", err)
	}
	var pe *plan.Error
	if errors.As(err, &pe) && pe.Asked != "request 1, which needs 3 pages, with 2" {
		t.Errorf("the refusal says %q", pe.Asked)
	}
	for name, damage := range map[string]func(*plan.Segment){
		"a gap between segments":           func(s *plan.Segment) { s.FirstRow++ },
		"spans that hold fewer rows":       func(s *plan.Segment) { s.Spans = s.Spans[:1] },
		"a segment that claims a row more": func(s *plan.Segment) { s.Rows++ },
	} {
		in := mixed(t, plan.Policy{KV: "bf16"})
		bad := *in.Plan
		bad.Segments = slices.Clone(in.Plan.Segments)
		damage(&bad.Segments[1])
		in.Plan = &bad
		if err := h.fill(in, 4); !errors.Is(err, plan.E26) {
			t.Errorf("%s: got %v, want E26", name, err)
		}
	}
}

// Segments are cut out of the device's arrays by the marks.
func TestSegmentsViewTheirPart(t *testing.T) {
	in := mixed(t, plan.Policy{KV: "fp8-576", Prefill: "sparse-block", Decode: "sparse-raw"})
	var h hostArrays
	if err := h.fill(in, 4); err != nil {
		t.Fatal(err)
	}
	dev := openRef(t)
	device := func(v []int32, cols int) kernel.Tensor {
		x, err := kernel.New(dev, kernel.I32, len(v)/cols, cols)
		if err == nil {
			err = kernel.WriteI32(dev, x, v)
		}
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	seg := h.segments(nil, in, tensors{flat: device(h.flat, 1), pages: device(h.pages, 1), tables: device(h.tables, h.width)})
	if len(seg) != 4 {
		t.Fatalf("%d segments, want 4", len(seg))
	}
	read := func(x kernel.Tensor) []int32 {
		v := make([]int32, x.Rows*x.Cols)
		if err := kernel.ReadI32(dev, v, x); err != nil {
			t.Fatal(err)
		}
		return v
	}
	ints(t, "keys of the dense launch", read(seg[0].launches[0].flat), 20, 21, 22, 23)
	ints(t, "pages of the sparse launch", read(seg[1].launches[0].pages), 5, 2, 9)
	ints(t, "tables of the sparse launch", read(seg[1].launches[0].table), 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0)
	ints(t, "index keys of the sparse launch", read(seg[1].launches[0].indexFlat), slices.Concat(keys0, keys3)...)
	for i, want := range [][3]int{{0, 4, 4}, {4, 9, 8}, {9, 10, 9}, {10, 12, 7}} {
		l := seg[i].launches[0]
		if l.first != want[0] || l.last != want[1] || l.scoreWidth != want[2] {
			t.Errorf("segment %d: rows %d to %d, scores %d wide; want %v", i, l.first, l.last, l.scoreWidth, want)
		}
		if i != 1 && l.table.Given() {
			t.Errorf("segment %d has a table over converted pages", i)
		}
	}
}
