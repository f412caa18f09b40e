package plan

import "testing"

// A chunk of scores that does not fit into the memory reserve is reduced to a multiple of the grain, but not below one
// grain.
func TestChunksAreMultiplesOfTheGrain(t *testing.T) {
	for _, c := range []struct {
		rows, chunk, reserve int64
		grain                int
		want                 int64
	}{
		{50, 100, 10000, 3, 50}, // the whole chunk fits
		{50, 20, 10000, 3, 20},
		{50, 100, 1000, 1, 10},
		{50, 100, 1000, 3, 9},
		{50, 100, 1000, 4, 8},
		{50, 100, 100, 3, 3},
	} {
		sl := slicer{held: held{scoreRow: 100}, grain: c.grain, chunk: c.chunk, reserve: c.reserve}
		if got := sl.chunked(load{rows: c.rows}).chunk; got != c.want || c.reserve < 10000 && sl.chunk != c.want {
			t.Errorf("%+v: chunks of %d rows, the segment's of %d", c, got, sl.chunk)
		}
	}
}
