package v4

import (
	"slices"
	"testing"

	"sparrow/attn"
	"sparrow/model"
	"sparrow/model/config"
	"sparrow/plan"
)

// planned is a model without weights and one extend step of it: tokens new ones after cached, in pages 10, 11, 12 and so on.
func planned(t *testing.T, p plan.Policy, topK, cached, tokens int) (*Model, *model.Input) {
	t.Helper()
	c := &config.V4{Config: config.Config{Layers: 3, MaxPositions: 1 << 20, Vocab: 10, Indexer: config.Indexer{Heads: 4, TopK: topK}},
		Attention: config.V4Attention{Heads: 4, Dim: 512, Window: 128, Ratios: []int{0, 4, 128}}}
	m := &Model{config: c, ratios: map[int]bool{0: true, 4: true, 128: true}, layers: []layer{{ratio: 0}, {ratio: 4}, {ratio: 128}}}
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, Facts(c), p)
	if err != nil {
		t.Fatal(err)
	}
	b := plan.NewBatch(plan.ModeExtend, plan.ExtendRequest(tokens, cached))
	pl, err := plan.Build(cfg, b)
	if err != nil {
		t.Fatal(err)
	}
	var table []int32
	for i := range (cached + tokens + 255) / 256 {
		table = append(table, int32(10+i))
	}
	st := &State{m: m, slot: 2, len: cached, high: cached}
	m.step.states = []*State{st}
	return m, &model.Input{Step: attn.Step{Plan: pl, Config: &cfg, Batch: &b, Tables: [][]int32{table}, PageTokens: 256},
		Tokens: [][]int32{make([]int32, tokens)}, States: []model.State{st}}
}

// What a query at position t sees: min(t+1, 128) window entries, t+1 over 4 and t+1 over 128 groups. With top-k 512, every group is selected
// up to t = 2050, and 512 of them from there on.
func TestVisibility(t *testing.T) {
	m, in := planned(t, plan.Policy{KV: "fp8", Prefill: "v4-paged"}, 512, 0, 2200)
	var h hostArrays
	if err := h.fill(in, m); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ t, window, groups, kept, heavy int32 }{
		{0, 1, 0, 0, 0}, {2, 3, 0, 0, 0}, {3, 4, 1, 1, 0}, {4, 5, 1, 1, 0}, {126, 127, 31, 31, 0}, {127, 128, 32, 32, 1}, {128, 128, 32, 32, 1},
		{255, 128, 64, 64, 2}, {511, 128, 128, 128, 4}, {2047, 128, 512, 512, 16}, {2051, 128, 513, 512, 16},
	} {
		r := slices.Index(h.position, c.t)
		if h.windowLen[r] != c.window || h.groups[r] != c.groups || h.kept[r] != c.kept || h.heavyLen[r] != c.heavy {
			t.Errorf("position %d sees %d, %d (%d kept), %d; want %+v", c.t, h.windowLen[r], h.groups[r], h.kept[r], h.heavyLen[r], c)
		}
		window, heavy := h.window[r*h.windowWidth:][:h.windowWidth], h.heavy[r*h.heavyWidth:][:h.heavyWidth]
		for i, slot := range window {
			want := int32(-1)
			if i < int(c.window) {
				p := int(c.t) - int(c.window) + 1 + i
				want = int32((10+p/256)*256 + p%256)
			}
			if slot != want {
				t.Fatalf("position %d: window entry %d is slot %d, want %d", c.t, i, slot, want)
			}
		}
		for g, slot := range heavy {
			want := int32(-1)
			if g < int(c.heavy) {
				want = int32((10+g/2)*2 + g%2)
			}
			if slot != want {
				t.Fatalf("position %d: heavy group %d is slot %d, want %d", c.t, g, slot, want)
			}
		}
	}
}

// A workspace holds, for each launch, the window entries and groups its rows see; combined indices name them wherever they lie.
func TestWorkspacePlaces(t *testing.T) {
	m, in := planned(t, plan.Policy{KV: "fp8"}, 64, 300, 10)
	var h hostArrays
	if err := h.fill(in, m); err != nil {
		t.Fatal(err)
	}
	if len(h.marks) != 1 {
		t.Fatalf("%d launches, want one", len(h.marks))
	}
	k := h.marks[0]
	window, groups, heavy := h.flat[k.window:k.windowEnd], h.flat[k.groups:k.groupsEnd], h.flat[k.heavy:k.heavyEnd]
	// Rows 300..309 see positions 173..309, groups 0..76 and heavy groups 0 and 1.
	if len(window) != 137 || window[0] != 10*256+173 || window[136] != 11*256+309-256 || len(groups) != 77 || groups[76] != 11*64+12 || !slices.Equal(heavy, []int32{20, 21}) {
		t.Fatalf("gathered %d window entries from %d to %d, %d groups to %d, heavy %v", len(window), window[0], window[len(window)-1], len(groups), groups[len(groups)-1], heavy)
	}
	for r := range 10 {
		for i, local := range h.window[r*h.windowWidth:][:128] {
			p := 300 + r - 127 + i
			if at := local + h.windowBase[r]; window[at] != int32((10+p/256)*256+p%256) {
				t.Fatalf("row %d window entry %d is workspace row %d", r, i, at)
			}
		}
		if h.groupBase[r] != 137 || h.heavyBase[r] != 137 || h.groupStart[r] != 0 {
			t.Errorf("row %d: groups begin at %d and %d, keys at %d", r, h.groupBase[r], h.heavyBase[r], h.groupStart[r])
		}
	}
}

// Groups that close in a step read their rows from the step and from the rings, and rows are kept where the next step looks for them.
func TestEntrySources(t *testing.T) {
	m, in := planned(t, plan.Policy{KV: "fp8"}, 64, 6, 7) // positions 6..12: groups 1 (4..7) and 2 (8..11) close
	var h hostArrays
	if err := h.fill(in, m); err != nil {
		t.Fatal(err)
	}
	ring := func(p int32) int32 { return -2 - (2*16 + p%16) } // slot 2
	want := []int32{
		ring(0), ring(1), ring(2), ring(3), ring(4), ring(5), 0, 1,
		ring(4), ring(5), 0, 1, 2, 3, 4, 5,
	}
	if !slices.Equal(h.closing4.sources, want) {
		t.Errorf("sources %v, want %v", h.closing4.sources, want)
	}
	if !slices.Equal(h.closing4.slots, []int32{10*64 + 1, 10*64 + 2}) || !slices.Equal(h.closing4.position, []int32{4, 8}) {
		t.Errorf("entries in slots %v at positions %v", h.closing4.slots, h.closing4.position)
	}
	for i, place := range h.closing4.keep {
		if want := int32(2*16 + (6+i)%16); place != want {
			t.Errorf("row %d is kept at %d, want %d", i, place, want)
		}
	}
	if h.closing128.entries() != 0 || h.closing128.keep[0] != 2*256+6 {
		t.Errorf("ratio 128: %d entries, row 0 kept at %d", h.closing128.entries(), h.closing128.keep[0])
	}
	// The first group of a sequence has no group before it.
	m, in = planned(t, plan.Policy{KV: "fp8"}, 64, 0, 4)
	if err := h.fill(in, m); err != nil {
		t.Fatal(err)
	}
	if want := []int32{-1, -1, -1, -1, 0, 1, 2, 3}; !slices.Equal(h.closing4.sources, want) {
		t.Errorf("sources of the first group %v, want %v", h.closing4.sources, want)
	}
	// Of a long prompt only the last rows are kept.
	m, in = planned(t, plan.Policy{KV: "fp8"}, 64, 0, 400)
	if err := h.fill(in, m); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		position int32
		keep     []int32
		want     int32
	}{{383, h.closing4.keep, -1}, {384, h.closing4.keep, 2 * 16}, {143, h.closing128.keep, -1}, {144, h.closing128.keep, 2*256 + 144}, {399, h.closing128.keep, 2*256 + 143}} {
		if got := c.keep[slices.Index(h.position, c.position)]; got != c.want {
			t.Errorf("position %d is kept at %d, want %d", c.position, got, c.want)
		}
	}
}

// Rings hold what an open group needs after any length, and nine tokens can be taken back.
func TestRingsAreLongEnough(t *testing.T) {
	m := &Model{layers: []layer{{ratio: 0}, {ratio: 4}, {ratio: 128}}}
	for n := range 1100 {
		s := &State{m: m, len: n, high: n}
		if err := s.holds(n); err != nil {
			t.Fatal(err)
		}
		if n >= 9 {
			if err := s.holds(n - 9); err != nil {
				t.Fatalf("%d tokens, nine taken back: %v", n, err)
			}
		}
	}
}
