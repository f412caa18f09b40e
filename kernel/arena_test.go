package kernel_test

import (
	"testing"

	"sparrow/kernel"
)

// An arena that follows another continues where that one is, and keeps its own high mark if it is higher.
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
