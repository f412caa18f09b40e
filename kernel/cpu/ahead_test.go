package cpu

import (
	"slices"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// Workers prefetch the stage that followed the current stage in the previous pass, piece by piece and only once. Before
// the next stage is known, and after the last stage, they prefetch nothing.
func TestStagesAreLearned(t *testing.T) {
	a := ahead{places: make([]aheadPlace, 2)}
	made := 0
	key := func(i int) stageKey { return stageKey{w: weights[i]} }
	begin := func(i, bytes int) {
		a.begin(key(i), bytes, 2, func() [][][]byte {
			made++
			return [][][]byte{{make([]byte, bytes)}, {make([]byte, aheadPiece), make([]byte, 1)}}
		})
	}
	pieces := func(worker int) (n int) {
		for a.fetch(worker) {
			n++
		}
		return n
	}
	begin(0, 1)
	if n := pieces(0); n != 0 {
		t.Errorf("%d pieces were prefetched before a stage was known, want 0", n)
	}
	begin(1, 3*aheadPiece)
	begin(0, 1)
	if n, m, again := pieces(0), pieces(1), pieces(0); n != 3 || m != 2 || again != 0 {
		t.Errorf("%d and %d pieces, then %d; want 3, 2 and 0", n, m, again)
	}
	begin(1, 3*aheadPiece)
	if n := pieces(0); n != 1 || made != 2 {
		t.Errorf("%d pieces, spans were made %d times; want 1 and 2", n, made)
	}
	begin(0, 2*aheadPiece) // other weights, whose first matrix is an earlier one
	if begin(1, 3*aheadPiece); pieces(0) != 2 || made != 3 {
		t.Errorf("spans were made %d times, want 3", made)
	}
}

var weights = []*host.Matrix{{}, {}}

// A worker prefetches the weights that it multiplies first: the spans of all workers are in the order of their shares,
// and no span is longer than the limit.
func TestSpansAreTheShares(t *testing.T) {
	d := Open(vec.Best(), kernel.Options{Workers: 3})
	defer d.Close()
	mem := make([]byte, 10)
	spans := spansOf(d, 10, func(to [][]byte, item int) [][]byte { return append(to, mem[item:item+1]) })
	var all []int
	for _, list := range spans {
		for _, s := range list {
			all = append(all, cap(mem)-cap(s))
		}
	}
	if !slices.Equal(all, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) || len(spans[0]) != 4 {
		t.Errorf("items %v, the first worker has %d", all, len(spans[0]))
	}
	long := spansOf(d, 3, func(to [][]byte, _ int) [][]byte { return append(to, make([]byte, 2*aheadBytes)) })
	if len(long[0]) != 1 || len(long[0][0]) != aheadBytes {
		t.Errorf("%d spans, the first of %d bytes", len(long[0]), len(long[0][0]))
	}
}
