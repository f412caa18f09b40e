package dual

import (
	"slices"
	"testing"

	"sparrow/internal/attn"
	"sparrow/kernel"
	"sparrow/kernel/ref"
	"sparrow/layout"
	"sparrow/plan"
)

// facts returns the plan's description of a model with one layer of each ratio.
func facts(topK int) plan.Model {
	return plan.Model{Family: plan.DeepSeekV4, Heads: 4, K: topK, IndexHeads: 4, QKDim: 512, VDim: 512, Layers: 3,
		Context: 1 << 20, Window: 128, Ratios: []int{0, 4, 128}}
}

// attention returns the attention of a model without weights.
func attention(t *testing.T, topK int) *Attention {
	t.Helper()
	dev := &ref.Device{}
	freq := make([]float32, 32)
	a, err := New(dev, kernel.NewBuilder(dev, kernel.Member{}),
		Params{Heads: 4, Dim: 512, Rope: 64, Window: 128, IndexHeads: 4, TopK: topK, MainFreq: freq, FarFreq: freq},
		[]*Weights{{Ratio: 0}, {Ratio: 4}, {Ratio: 128}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// build plans a pass of one request whose pages are 10, 11, 12 and so on.
func build(t *testing.T, p plan.Policy, topK int, pass plan.Pass, q plan.Request) *attn.Batch {
	t.Helper()
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, facts(topK), p)
	if err != nil {
		t.Fatal(err)
	}
	b := plan.Batch{Pass: pass}
	b.Add(q)
	pl, err := plan.Build(cfg, b)
	if err != nil {
		t.Fatal(err)
	}
	var table []int32
	for i := range (b.FirstPosition(&cfg, 0) + b.Rows(&cfg, 0) + 255) / 256 {
		table = append(table, int32(10+i))
	}
	return &attn.Batch{Plan: pl, Config: &cfg, Batch: &b, Tables: [][]int32{table}, PageTokens: 256}
}

// kinds returns the layouts of a configuration.
func kinds(t *testing.T, cfg *plan.Config) (l Layouts) {
	t.Helper()
	var err error
	if l.Entry, err = layout.ParseKind(cfg.Layout.String()); err == nil {
		l.Index, err = layout.ParseKind(cfg.IndexLayout.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// arrays gives access to the arrays in the input block of a pass.
type arrays struct {
	*testing.T
	plan  *plan.Plan
	block attn.Block
}

func (a arrays) of(name plan.ArrayName) []int32 { return a.block.Array(name) }

// row returns one row of a rectangular array.
func (a arrays) row(name plan.ArrayName, r int) []int32 {
	n := a.plan.Input(name).Cols
	return a.of(name)[r*n:][:n]
}

// at returns the row that has a position.
func (a arrays) at(position int32) int { return slices.Index(a.of(plan.Positions), position) }

func (a arrays) equal(name plan.ArrayName, want ...int32) {
	a.Helper()
	if got := a.of(name); !slices.Equal(got, want) {
		a.Errorf("%v are %v, want %v", name, got, want)
	}
}

// newBlock returns a block that still contains values of an earlier pass.
func newBlock(t *testing.T, p *plan.Plan) arrays {
	words := make([]int32, p.InputWords)
	fill(words, 1<<30)
	return arrays{t, p, attn.NewBlock(p, words)}
}

// prepared returns the filled input block of one request after its cached tokens. The state of the request has slot 2.
func prepared(t *testing.T, p plan.Policy, topK int, q plan.Request) arrays {
	t.Helper()
	b := build(t, p, topK, plan.PassTarget, q)
	a := attention(t, topK)
	mem := kernel.MeasureArena()
	pass, err := a.Arrange(b.Plan, attn.TakeInputs(b.Plan, mem), mem, kinds(t, b.Config))
	if err != nil {
		t.Fatal(err)
	}
	first := b.Batch.FirstPosition(b.Config, 0)
	out := newBlock(t, b.Plan)
	states := []*State{{of: a.States, slot: 2, len: first, high: first}}
	if err := pass.Prepare(&Batch{Batch: b, Pages: 2000, States: states}, out.block); err != nil {
		t.Fatal(err)
	}
	return out
}

// A query at position t attends to min(t+1, 128) window entries, floor((t+1)/4) groups of 4 and floor((t+1)/128) groups
// of 128. With top-k 512, every group of 4 is selected up to t = 2050, and 512 groups after that, also at the end of
// 393,216 tokens.
func TestVisibility(t *testing.T) {
	paged := plan.Policy{KV: "fp8", Prefill: "v4-paged"}
	short, long := prepared(t, paged, 512, plan.ExtendRequest(2200, 0)),
		prepared(t, paged, 512, plan.ExtendRequest(16, 393200))
	for _, c := range []struct{ t, window, groups, kept, heavy int32 }{
		{0, 1, 0, 0, 0}, {2, 3, 0, 0, 0}, {3, 4, 1, 1, 0}, {4, 5, 1, 1, 0}, {126, 127, 31, 31, 0},
		{127, 128, 32, 32, 1}, {128, 128, 32, 32, 1}, {255, 128, 64, 64, 2}, {511, 128, 128, 128, 4},
		{2047, 128, 512, 512, 16}, {2051, 128, 513, 512, 16},
		{393214, 128, 98303, 512, 3071}, {393215, 128, 98304, 512, 3072},
	} {
		h := short
		if c.t > 2200 {
			h = long
		}
		r := h.at(c.t)
		window, groups := h.of(plan.WindowLengths)[r], h.of(plan.Groups)[r]
		kept, heavy := h.of(plan.Kept)[r], h.of(plan.HeavyLengths)[r]
		if window != c.window || groups != c.groups || kept != c.kept || heavy != c.heavy {
			t.Errorf("position %d sees %d, %d (%d kept), %d; want %+v", c.t, window, groups, kept, heavy, c)
		}
		for i, slot := range h.row(plan.WindowIndices, r) {
			want := int32(-1)
			if i < int(c.window) {
				p := int(c.t) - int(c.window) + 1 + i
				want = int32((10+p/256)*256 + p%256)
			}
			if slot != want {
				t.Fatalf("position %d: window entry %d is slot %d, want %d", c.t, i, slot, want)
			}
		}
		for g, slot := range h.row(plan.HeavyIndices, r) {
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

// For each launch, a workspace holds the window entries and groups that the launch's rows attend to, and combined
// indices refer to their positions in the workspace.
func TestWorkspacePlaces(t *testing.T) {
	h := prepared(t, plan.Policy{KV: "fp8"}, 64, plan.ExtendRequest(10, 300))
	if len(h.plan.Segments) != 1 || len(h.plan.Segments[0].Launches) != 1 {
		t.Fatalf("segments %+v, want one with one launch", h.plan.Segments)
	}
	l := h.plan.Segments[0].Launches[0]
	window := h.of(plan.GatherSlots)[l.Gather.First:l.Gather.End()]
	groups := h.of(plan.GroupSlots)[l.Groups.First:l.Groups.End()]
	heavy := h.of(plan.HeavySlots)[l.Heavy.First:l.Heavy.End()]
	// Rows 300..309 attend to positions 173..309, groups 0..76 and heavy groups 0 and 1.
	if len(window) != 137 || window[0] != 10*256+173 || window[136] != 11*256+309-256 ||
		len(groups) != 77 || groups[76] != 11*64+12 || !slices.Equal(heavy, []int32{20, 21}) {
		t.Fatalf("gathered %d window entries from %d to %d, %d groups to %d, heavy %v",
			len(window), window[0], window[len(window)-1], len(groups), groups[len(groups)-1], heavy)
	}
	for r := range 10 {
		for i, local := range h.row(plan.WindowIndices, r)[:128] {
			p := 300 + r - 127 + i
			if at := local + h.of(plan.WindowStart)[r]; window[at] != int32((10+p/256)*256+p%256) {
				t.Fatalf("row %d window entry %d is workspace row %d", r, i, at)
			}
		}
		group, heavy, keys := h.of(plan.GroupBase)[r], h.of(plan.HeavyBase)[r], h.of(plan.GroupStart)[r]
		if group != 137 || heavy != 137 || keys != 0 {
			t.Errorf("row %d: groups begin at %d and %d, keys at %d", r, group, heavy, keys)
		}
	}
}

// ringPlace returns the source index of a row of ratio 4 in the ring of slot 2.
func ringPlace(p int32) int32 { return -2 - (2*16 + p%16) }

// A group that is completed in a step reads its rows from the step and from the rings. Rows of open groups are stored
// where the next step reads them.
func TestEntrySources(t *testing.T) {
	// The rows have positions 6 to 12. They complete groups 1 (positions 4 to 7) and 2 (positions 8 to 11).
	h := prepared(t, plan.Policy{KV: "fp8"}, 64, plan.ExtendRequest(7, 6))
	ring := ringPlace
	h.equal(plan.CloseSources,
		ring(0), ring(1), ring(2), ring(3), ring(4), ring(5), 0, 1,
		ring(4), ring(5), 0, 1, 2, 3, 4, 5)
	h.equal(plan.CloseSlots, 10*64+1, 10*64+2)
	h.equal(plan.ClosePositions, 4, 8)
	for i, place := range h.of(plan.KeepRows) {
		if want := int32(2*16 + (6+i)%16); place != want {
			t.Errorf("row %d is kept at %d, want %d", i, place, want)
		}
	}
	if n, keep := len(h.of(plan.HeavyCloses)), h.of(plan.HeavyKeeps)[0]; n != 0 || keep != 2*256+6 {
		t.Errorf("ratio 128: %d entries, row 0 kept at %d", n, keep)
	}
	// The first group of a sequence has no group before it.
	h = prepared(t, plan.Policy{KV: "fp8"}, 64, plan.ExtendRequest(4, 0))
	h.equal(plan.CloseSources, -1, -1, -1, -1, 0, 1, 2, 3)
	// Only the last rows of a long prompt are kept.
	h = prepared(t, plan.Policy{KV: "fp8"}, 64, plan.ExtendRequest(400, 0))
	for _, c := range []struct {
		position int32
		keep     plan.ArrayName
		want     int32
	}{{383, plan.KeepRows, -1}, {384, plan.KeepRows, 2 * 16}, {143, plan.HeavyKeeps, -1},
		{144, plan.HeavyKeeps, 2*256 + 144}, {399, plan.HeavyKeeps, 2*256 + 143}} {
		if got := h.of(c.keep)[h.at(c.position)]; got != c.want {
			t.Errorf("position %d is kept at %d, want %d", c.position, got, c.want)
		}
	}
}

// A decode pass has one entry of each ratio, whether or not its token completes a group. If the token does not, the
// entry has neither a source nor a slot.
func TestDecodePadsGroups(t *testing.T) {
	decode := func(cached int) arrays {
		return prepared(t, plan.Policy{KV: "fp8"}, 64, plan.DecodeRequest(cached+1))
	}
	h := decode(6) // position 6 completes no group
	h.equal(plan.CloseSources, -1, -1, -1, -1, -1, -1, -1, -1)
	h.equal(plan.CloseSlots, -1)
	h.equal(plan.HeavyCloses, -1)
	h.equal(plan.HeavySources, slices.Repeat([]int32{-1}, 128)...)
	h.equal(plan.TailRows, -1)
	h.equal(plan.KeepRows, 2*16+6)
	h = decode(7) // position 7 completes group 1 of ratio 4
	ring := ringPlace
	h.equal(plan.CloseSources, ring(0), ring(1), ring(2), ring(3), ring(4), ring(5), ring(6), 0)
	h.equal(plan.CloseSlots, 10*64+1)
	h.equal(plan.ClosePositions, 4)
	h.equal(plan.HeavyCloses, -1)
	h = decode(255) // position 255 completes groups of both ratios and a page
	h.equal(plan.CloseSlots, 10*64+63)
	h.equal(plan.HeavyCloses, 10*2+1)
	h.equal(plan.HeavyPositions, 128)
	h.equal(plan.TailRows, 10*TailRows+3)
	if sources := h.of(plan.HeavySources); sources[0] != -2-(2*256+128) || sources[127] != 0 {
		t.Errorf("the heavy group is made of %v", sources)
	}
	// Four rows complete one group of ratio 4 wherever they begin, and may complete one of ratio 128.
	verify := func(cached int) arrays {
		return prepared(t, plan.Policy{KV: "fp8"}, 64, plan.VerifyRequest(4, cached))
	}
	verify(8).equal(plan.CloseSlots, 10*64+2)
	h = verify(126)
	h.equal(plan.CloseSlots, 10*64+31)
	h.equal(plan.HeavyCloses, 10*2)
}

// The rings hold the rows that an open group needs for any length, including after nine tokens were truncated.
func TestRingsAreLongEnough(t *testing.T) {
	states := &States{layers: []*Weights{{Ratio: 0}, {Ratio: 4}, {Ratio: 128}}}
	for n := range 1100 {
		s := &State{of: states, len: n, high: n}
		if err := s.holds(n); err != nil {
			t.Fatal(err)
		}
		if n >= 9 {
			if err := s.holds(n - 9); err != nil {
				t.Fatalf("%d tokens, nine truncated: %v", n, err)
			}
		}
	}
}

// The offsets of tensors depend only on the plan: if a pass is laid out twice, all tensors have equal offsets.
func TestPlacesAreThePlansAlone(t *testing.T) {
	b := build(t, plan.Policy{KV: "fp8"}, 64, plan.PassTarget, plan.ExtendRequest(500, 300))
	a := attention(t, 64)
	arrange := func() *Pass {
		mem := kernel.MeasureArena()
		p, err := a.Arrange(b.Plan, attn.TakeInputs(b.Plan, mem), mem, kinds(t, b.Config))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	want := arrange()
	for range 20 {
		got := arrange()
		for i := range want.launches {
			for ratio, x := range want.launches[i].combined {
				if y := got.launches[i].combined[ratio]; y.Off != x.Off {
					t.Fatalf("indices of ratio %d lie at %d, and at %d before", ratio, y.Off, x.Off)
				}
			}
		}
	}
}
