package kernel_test

import (
	"testing"

	"sparrow/kernel"
)

// An arena that follows another one starts at the offset of that arena, and keeps its own high mark if that is higher.
func TestArenasFollow(t *testing.T) {
	for _, c := range []struct{ own, other, high int64 }{{1000, 300, 1024}, {300, 1000, 1024}} {
		a, b := kernel.MeasureArena(), kernel.MeasureArena()
		a.Take(kernel.U8, 1, int(c.own))
		b.Take(kernel.U8, 1, int(c.other))
		a.Follow(b)
		if a.Mark() != b.Mark() || a.High() != c.high {
			t.Errorf("%+v: at %d, want %d; high %d", c, a.Mark(), b.Mark(), a.High())
		}
		if next := a.Take(kernel.U8, 1, 1); next.Off != b.Mark() {
			t.Errorf("%+v: the next is at %d", c, next.Off)
		}
	}
}

// A router may choose as many experts as are in the kept groups, but not more.
func TestChoicesOfKeptExperts(t *testing.T) {
	for top, ok := range map[int]bool{16: true, 17: false} {
		a := kernel.RouteArgs{IDs: tensor(t, kernel.I32, 3, top), Weights: tensor(t, kernel.F32, 3, top),
			Logits: tensor(t, kernel.F32, 3, 64), Bias: tensor(t, kernel.F32, 1, 64), Groups: 8, KeepGroups: 2}
		if err := a.Check(); (err == nil) != ok {
			t.Errorf("%d of 2 groups of 8 experts: %v", top, err)
		}
	}
	for top, ok := range map[int]bool{64: true, 65: false} {
		a := kernel.RootRouteArgs{IDs: tensor(t, kernel.I32, 3, top), Weights: tensor(t, kernel.F32, 3, top),
			Logits: tensor(t, kernel.F32, 3, 64), Bias: tensor(t, kernel.F32, 1, 64)}
		if err := a.Check(); (err == nil) != ok {
			t.Errorf("%d of 64 experts: %v", top, err)
		}
	}
}
