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

// window returns the input block of a drafting pass over n rows after cached tokens.
func window(t *testing.T, a *Attention, c *DraftCache, st *State, n, cached int) arrays {
	t.Helper()
	p := plan.Policy{KV: "fp8"}
	b := build(t, p, 64, plan.PassDraft, plan.ExtendRequest(n, cached))
	mem := kernel.MeasureArena()
	pass := a.ArrangeWindow(b.Plan, attn.TakeInputs(b.Plan, mem), mem, c)
	out := newBlock(t, b.Plan)
	if err := pass.Prepare(b, []*State{st}, out.block, func(WindowRow) error { return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

// If a chunk is longer than the window, only its last rows are computed, and the ring holds no entries of the rows
// before them: no row attends to their slots, neither a row of the chunk nor one after a truncation.
func TestDraftsSeeOnlyWrittenEntries(t *testing.T) {
	a := attention(t, 64)
	c := NewDraftCache(&ref.Device{})
	if err := c.Use(layout.V4Packed{}, 3); err != nil {
		t.Fatal(err)
	}
	for _, chunks := range [][]int{{300}, {100, 137}, {100, 300}, {5, 128, 200}, {130, 131, 20}, {100, 129, 1}} {
		st := &State{of: a.States, slot: 2}
		written, at := map[int32]bool{}, 0
		check := func(h arrays) {
			t.Helper()
			for _, slot := range h.of(plan.Slots) {
				written[slot] = true
			}
			for r, p := range h.of(plan.Positions) {
				n := int(h.of(plan.WindowLengths)[r])
				for i, slot := range h.row(plan.WindowIndices, r) {
					if (slot >= 0) != (i < n) {
						t.Fatalf("chunks of %v: position %d sees %d entries, entry %d is %d", chunks, p, n, i, slot)
					}
					if slot >= 0 && !written[slot] {
						t.Fatalf("chunks of %v: position %d sees place %d, which was never written", chunks, p, slot)
					}
				}
			}
		}
		for _, n := range chunks {
			h := window(t, a, c, st, n, at)
			at += n
			check(h)
			if rows := len(h.of(plan.Positions)); rows != min(n, 128) {
				t.Fatalf("%d rows of a chunk of %d are computed", rows, n)
			}
			// The last row attends to a whole window, or to all positions of a sequence that is shorter than a window.
			if last := h.of(plan.WindowLengths)[min(n, 128)-1]; last != int32(min(at, 128)) {
				t.Errorf("chunks of %v: the last row at %d sees %d entries", chunks, at-1, last)
			}
		}
		check(window(t, a, c, st, 3, at-9))
	}
}

// A newly allocated ring contains no entries of any sequence.
func TestDraftsForgetWithTheirRing(t *testing.T) {
	a := attention(t, 64)
	c := NewDraftCache(&ref.Device{})
	if err := c.Use(layout.V4Packed{}, 3); err != nil {
		t.Fatal(err)
	}
	st := &State{of: a.States, slot: 2}
	window(t, a, c, st, 50, 0).equal(plan.WindowLengths, seq(1, 50)...)
	window(t, a, c, st, 2, 50).equal(plan.WindowLengths, 51, 52)
	if err := c.Grow(6); err != nil {
		t.Fatal(err)
	}
	window(t, a, c, st, 3, 52).equal(plan.WindowLengths, 1, 2, 3)
	// A sequence that continues after a gap starts with an empty window.
	window(t, a, c, st, 2, 60).equal(plan.WindowLengths, 1, 2)
}

func seq(from, to int32) []int32 {
	var out []int32
	for ; from <= to; from++ {
		out = append(out, from)
	}
	return slices.Clip(out)
}
