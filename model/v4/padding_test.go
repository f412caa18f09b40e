package v4_test

import (
	"bytes"
	"fmt"
	"testing"

	"sparrow/plan"
	"sparrow/step"
)

// page is one page of one pool.
type page struct {
	layer, ratio int // tokens of an entry
	number       int
}

// pages reads every page of every pool: of a layer's window (ratio 1), its groups, and with them their keys.
func (b *bench) pages() map[page][]byte {
	b.Helper()
	out := map[page][]byte{}
	for i, layer := range b.m.Pools() {
		for _, p := range layer {
			buf := make([]byte, p.Mem.Rows*p.Mem.Cols)
			if err := b.m.Device().Read(buf, p.Mem); err != nil {
				b.Fatal(err)
			}
			for n := range p.Mem.Rows {
				at := page{layer: i, ratio: b.cfg.Page / p.PageTokens, number: n}
				out[at] = append(out[at], buf[n*p.Mem.Cols:(n+1)*p.Mem.Cols]...)
			}
		}
	}
	return out
}

// mark fills every pool with bytes that no entry of zeros has.
func (b *bench) mark() {
	b.Helper()
	for _, layer := range b.m.Pools() {
		for _, p := range layer {
			if err := b.m.Device().Write(p.Mem, bytes.Repeat([]byte{0xa5}, p.Mem.Rows*p.Mem.Cols)); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// Decode-like steps have an entry for every group that could close. Those of groups that stay open write nothing: not
// to the pages of their sequence, nor anywhere else.
func TestPaddedGroupsWriteNothing(t *testing.T) {
	m := open(t, oracle, "cpu")
	for _, p := range []plan.Policy{{KV: "f32"}, {KV: "fp8"}, {KV: "fp8", FP4Index: true}} {
		b := newBench(t, m, p)
		for _, c := range []struct {
			kind   plan.Mode
			rows   int
			cached []int
		}{
			{plan.ModeDecode, 1, []int{6}}, {plan.ModeDecode, 1, []int{6, 7, 127, 12}},
			{plan.ModeVerify, 3, []int{4, 5, 126}},
		} {
			b.reset()
			b.mark()
			var all []*sequence
			for i, n := range c.cached {
				s := b.sequence(i, n+c.rows)
				b.step(s.work(plan.ModeExtend, n))
				all = append(all, s)
			}
			before := b.pages()
			var works []step.Work
			written := map[[2]int]bool{} // ratio and page
			for i, s := range all {
				works = append(works, s.work(c.kind, c.rows))
				for at := c.cached[i]; at < c.cached[i]+c.rows; at++ {
					for _, ratio := range []int{1, 4, 128} {
						if (at+1)%ratio == 0 {
							written[[2]int{ratio, int(s.pages[at/b.cfg.Page])}] = true
						}
					}
				}
			}
			b.step(works...)
			what := fmt.Sprintf("%s, four-bit keys %v: %v after %v", p.KV, p.FP4Index, c.kind, c.cached)
			for at, now := range b.pages() {
				if want := written[[2]int{at.ratio, at.number}]; want == bytes.Equal(now, before[at]) {
					t.Fatalf("%s: page %+v written: %v, want %v", what, at, !want, want)
				}
			}
		}
	}
}
