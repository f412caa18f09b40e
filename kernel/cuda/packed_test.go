package cuda

import "testing"

// Many rows are multiplied by kernels for pairs of blocks, or experts in wide groups, if the format has such kernels
// and the SMs stay as busy as with smaller groups.
func TestPackedGroups(t *testing.T) {
	for _, c := range []struct {
		format PackedFormat
		rows   int32
		want   int32
	}{
		{"nvfp4", 8, packedFew8}, {"nvfp4", 128, packedFew64}, {"nvfp4", 129, packedMany}, {"nvfp4", 4096, packedPair},
		{"iq2_xxs", 4096, packedMany}, {"i8_g32_any", 8192, packedPair},
		{"nvfp4", 9, packedTrio}, {"u4_g32_any", 16, packedTrio}, {"q4_k", 16, packedFew16},
	} {
		x := PackedProduct{Format: c.format, Rows: c.rows, Columns: 24576, K: 16384}
		if got := x.tokens(); got != c.want {
			t.Errorf("%s, %d rows: groups of %d, want %d", c.format, c.rows, got, c.want)
		}
	}
	for _, c := range []struct {
		gateUp, down PackedFormat
		rows, want   int32
	}{
		{"nvfp4", "nvfp4", 1024, packedMany}, {"nvfp4", "nvfp4", 2048, packedWide}, {"q4_k", "q2_k", 4096, packedMany},
		{"u4_g32", "i8_g128", 4096, packedWide}, {"u4_g32", "u4_g32", 300, packedFew64},
	} {
		e := ExpertShape{Experts: 64, Packed: c.gateUp, PackedDown: c.down}
		if got := packedGroup(e, c.rows, 8); got != c.want {
			t.Errorf("%s and %s, %d rows: groups of %d, want %d", c.gateUp, c.down, c.rows, got, c.want)
		}
	}
}

// Three blocks per SM for 9 to 16 rows are chosen if all of them have work and no SM has more of it than with one block
// per SM.
func TestPackedTrioFits(t *testing.T) {
	for items, want := range map[int32]bool{
		96: false, 132: false, // one tile per SM, or less: an SM would have three halves
		197: false, 198: true, // the last block has no work; three halves instead of two tiles
		264: false,           // six halves instead of two tiles
		384: true, 396: true, // six halves instead of three tiles
		505: false, // nine halves instead of four tiles
		528: false, 576: true,
	} {
		if got := packedTrioFits(items); got != want {
			t.Errorf("%d parts of tiles: %t, want %t", items, got, want)
		}
	}
}
