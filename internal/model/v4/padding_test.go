package v4_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model/v4"
	"sparrow/internal/step"
	"sparrow/internal/testkit/steps"
	"sparrow/internal/testkit/strict"
	"sparrow/kernel"
	"sparrow/plan"
)

// A page identifies one page of one pool.
type page struct {
	layer, ratio int // ratio is the number of tokens of an entry
	number       int
}

// pages returns the bytes of every page of every pool: of a layer's window (ratio 1) and of its groups with their keys.
func pages(b *steps.Bench) map[page][]byte {
	b.Helper()
	out := map[page][]byte{}
	for i, layer := range b.Model.Pools() {
		for _, p := range layer {
			buf := make([]byte, p.Mem.Rows*p.Mem.Cols)
			if err := b.Model.Device().Read(buf, p.Mem); err != nil {
				b.Fatal(err)
			}
			for n := range p.Mem.Rows {
				at := page{layer: i, ratio: b.Config.Page / p.PageTokens, number: n}
				out[at] = append(out[at], buf[n*p.Mem.Cols:(n+1)*p.Mem.Cols]...)
			}
		}
	}
	return out
}

// mark fills every pool with bytes that no entry of zeros has.
func mark(b *steps.Bench) {
	b.Helper()
	for _, layer := range b.Model.Pools() {
		for _, p := range layer {
			if err := b.Model.Device().Write(p.Mem, bytes.Repeat([]byte{0xa5}, p.Mem.Rows*p.Mem.Cols)); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// Decode-like steps have an entry for every group that they may complete. Entries of groups that stay open are not
// written, neither to the pages of their sequence nor elsewhere.
func TestPaddedGroupsWriteNothing(t *testing.T) {
	m := steps.Open[*v4.Model](t, compared(t), "cpu")
	for _, p := range []plan.Policy{{KV: "f32"}, {KV: "fp8"}, {KV: "fp8", FP4Index: true}} {
		b := steps.New(t, m, p)
		for _, c := range []struct {
			kind   plan.Mode
			rows   int
			cached []int
		}{
			{plan.ModeDecode, 1, []int{6}}, {plan.ModeDecode, 1, []int{6, 7, 127, 12}},
			{plan.ModeVerify, 3, []int{4, 5, 126}},
		} {
			b.Reset()
			mark(b)
			var all []*steps.Sequence
			for i, n := range c.cached {
				s := b.Sequence(i, n+c.rows)
				b.Step(s.Work(plan.ModeExtend, n))
				all = append(all, s)
			}
			before := pages(b)
			var works []step.Work
			written := map[[2]int]bool{} // pairs of ratio and page
			for i, s := range all {
				works = append(works, s.Work(c.kind, c.rows))
				for at := c.cached[i]; at < c.cached[i]+c.rows; at++ {
					for _, ratio := range []int{1, 4, 128} {
						if (at+1)%ratio == 0 {
							written[[2]int{ratio, int(s.Pages[at/b.Config.Page])}] = true
						}
					}
				}
			}
			b.Step(works...)
			what := fmt.Sprintf("%s, four-bit keys %v: %v after %v", p.KV, p.FP4Index, c.kind, c.cached)
			for at, now := range pages(b) {
				if want := written[[2]int{at.ratio, at.number}]; want == bytes.Equal(now, before[at]) {
					t.Fatalf("%s: page %+v written: %v, want %v", what, at, !want, want)
				}
			}
		}
	}
}

// capturing is a device that supports graphs: launching a graph runs its pass again.
type capturing struct{ kernel.Device }

func (capturing) Capture(pass func() error) (kernel.Graph, error) { return passGraph{pass}, nil }

type passGraph struct{ pass func() error }

func (g passGraph) Launch() error { return g.pass() }
func (passGraph) Launches() int   { return 1 }
func (passGraph) Bytes() int64    { return 1 }
func (passGraph) Stale() bool     { return false }
func (passGraph) Close() error    { return nil }

// crowd decodes several sequences in one batch, with lengths around the ends of groups of 4 and of 128. Then it
// verifies three rows of each and continues them by two drafts, one of them in a chain. It does this first for twelve
// sequences, then for eleven, then for nine. It returns all logits.
func crowd(b *steps.Bench) (out [][]float32) {
	b.Helper()
	var all []*steps.Sequence
	for i := range 12 {
		n := []int{1, 3, 5, 122, 126, 127, 128, 7, 60, 124, 2, 125}[i]
		s := b.Sequence(i, n+20)
		b.Step(s.Work(plan.ModeExtend, n))
		all = append(all, s)
	}
	for _, n := range []int{12, 11, 9} {
		for _, x := range []struct {
			kind plan.Mode
			rows int
		}{{plan.ModeDecode, 1}, {plan.ModeDecode, 1}, {plan.ModeVerify, 3}} {
			var works []step.Work
			for _, s := range all[:n] {
				works = append(works, s.Work(x.kind, x.rows))
			}
			out = append(out, b.Step(works...)...)
		}
		var drafts []step.Draft
		for i, s := range all[:n] {
			at := s.State.Len()
			drafts = append(drafts, step.Draft{Kind: plan.ModeDraft, Tokens: s.Tokens[at-2 : at+1], Cached: at - 3,
				Pages: s.Pages, State: s.State, Logits: true, From: i})
		}
		for _, chained := range []bool{false, true} {
			res, err := b.Runner.Draft(drafts, chained)
			if err != nil {
				b.Fatal(err)
			}
			for i := range drafts {
				out = append(out, slices.Clone(res.Row(i)))
				d := &drafts[i]
				d.Cached, d.Tokens = d.Cached+len(d.Tokens), d.Tokens[:1]
			}
		}
	}
	return out
}

// testPadding runs crowd with and without padded batches. It checks that logits and caches have the same bits, and that
// batches of nine, eleven and twelve sequences share their graphs.
func testPadding(t *testing.T, m *v4.Model) {
	p := plan.Policy{KV: "fp8"}
	p.Speculation.Tokens = 3
	cfg := steps.New(t, m, p).Config
	var want [][]float32
	var cache []byte
	for _, pads := range []bool{false, true} {
		limits := steps.Limits
		limits.PadStates = pads
		b := steps.Of(t, m, cfg, limits)
		got, g := crowd(b), b.Runner.Graphs()
		if g.Failed > 0 {
			t.Fatalf("captures failed: %+v", g)
		}
		if !pads {
			if want, cache = got, b.Bytes(); g.Captured != 3 {
				t.Errorf("%d captures without padding, want one of each size's decodes, which run twice", g.Captured)
			}
			continue
		}
		b.SameBits("padded batches", got, want)
		b.SameBytes("padded batches", b.Bytes(), cache)
		// One graph each is captured for decodes, verified rows, first rows of drafts, last rows of drafts, and chains.
		if g.Captured != 5 {
			t.Errorf("%d captures of padded batches, want 5: %+v", g.Captured, g)
		}
	}
}

func TestPaddedBatchesKeepBits(t *testing.T) {
	host := steps.Device(t, "cpu")
	dev, err := strict.Open(host)
	if err != nil {
		t.Fatal(err)
	}
	testPadding(t, steps.OpenOn[*v4.Model](t, released(t), capturing{dev}))
}

// A request without a state is accepted if it is padding and refused otherwise.
func TestOnlyPaddingHasNoState(t *testing.T) {
	b := steps.New(t, steps.Open[*v4.Model](t, compared(t), "cpu"), plan.Policy{KV: "fp8"})
	w := b.Sequence(1, 8).Work(plan.ModeExtend, 8)
	w.State = nil
	if _, err := b.Runner.Run([]step.Work{w}); err == nil || !strings.Contains(err.Error(), "NewState") {
		t.Errorf("a sequence without State: %v", err)
	}
}
