package cuda

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sparrow/layout"
)

func TestPiecesAreWholeWavesAndTeams(t *testing.T) {
	const one, four, eight = "sparrow_sparse_block", "sparrow_sparse_block_team4", "sparrow_sparse_block_team8"
	for _, c := range []struct {
		rows   int32
		groups int64
		want   []sparsePiece
	}{
		{1, 2, []sparsePiece{{eight, 0, 1, 8}}},
		{8, 2, []sparsePiece{{eight, 0, 8, 8}}},
		{9, 2, []sparsePiece{{four, 0, 9, 4}}},
		{48, 2, []sparsePiece{{four, 0, 48, 4}}},
		{64, 2, []sparsePiece{{one, 0, 64, 1}}},
		{66, 2, []sparsePiece{{one, 0, 66, 1}}},
		{68, 2, []sparsePiece{{one, 0, 66, 1}, {eight, 66, 2, 8}}},
		{128, 2, []sparsePiece{{one, 0, 128, 1}}},
		{140, 2, []sparsePiece{{one, 0, 132, 1}, {eight, 132, 8, 8}}},
		{3, 200, []sparsePiece{{one, 0, 3, 1}}}, // a row has more units than there are multiprocessors
	} {
		got := sparseKernels[layout.FP8Row656].pieces(c.rows, c.groups, 132)
		if d := cmp.Diff(c.want, got, cmp.AllowUnexported(sparsePiece{})); d != "" {
			t.Errorf("%d rows of %d units (-want +got):\n%s", c.rows, c.groups, d)
		}
		next := int32(0)
		for _, p := range got {
			if p.first != next {
				t.Errorf("%d rows: a piece begins at row %d, want %d", c.rows, p.first, next)
			}
			next += p.rows
		}
		if next != c.rows {
			t.Errorf("%d rows: pieces end at row %d", c.rows, next)
		}
	}
}

func TestAPieceReadsAndWritesItsOwnRows(t *testing.T) {
	a := someSparse()
	a.LSE, a.LSEStride = somewhere, 130
	got := a.rowsFrom(2, 1)
	want := a
	want.Streams[0].Indices += 2 * 2048 * 4
	want.Streams[0].Lens += 2 * 4
	want.Q += 2 * 128 * 576 * 2
	want.Out += 2 * 128 * 512 * 2
	want.LSE += 2 * 130 * 4
	want.Rows = 1
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("rows from 2 (-want +got):\n%s", d)
	}
}

func TestTrialsChangeSegmentsOfTheirLayoutAlone(t *testing.T) {
	plain := &Kernels{}
	teams := plain.With(Trials{Teams: true})
	for _, c := range []struct {
		k                *Kernels
		kind             layout.Kind
		width            int32
		segments, blocks int32
	}{
		{plain, layout.FP8Row656, 2048, 4, 8}, {teams, layout.FP8Row656, 2048, 1, 32},
		{teams, layout.FP8Row656, 2049, 5, 8}, {teams, layout.FP8Row576, 2048, 4, 8},
		{teams, layout.FP8Row656, 100, 1, 2},
	} {
		if segments, blocks := c.k.SparseSegments(c.kind, c.width); segments != c.segments || blocks != c.blocks {
			t.Errorf("%v, %d keys: %d segments of %d, want %d of %d", c.kind, c.width, segments, blocks, c.segments,
				c.blocks)
		}
	}
}
