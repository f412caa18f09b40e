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
		{"q4_k", 8, packedFew8}, {"nvfp4", 128, packedFew64}, {"nvfp4", 129, packedMany}, {"nvfp4", 4096, packedPair},
		{"iq2_xxs", 4096, packedMany}, {"i8_g32_any", 8192, packedPair},
		{"nvfp4", 1, packedFewMatrix}, {"u4_g32_any", 16, packedFewMatrix}, {"q2_k", 1, packedFewMatrix},
		{"iq2_xxs", 16, packedFewMatrix}, {"iq2_xxs", 17, packedFew64}, {"q4_k", 16, packedFew16},
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

// Blocks of six stripes are used for few rows if an SM then has at most a fifth more weights to process than with
// blocks of four stripes.
func TestPackedFewMatrixFits(t *testing.T) {
	for _, c := range []struct {
		columns, parts int32
		want           bool
	}{
		{132 * 256, 1, false},                      // a round of blocks of either kind
		{133 * 256, 1, true}, {198 * 256, 1, true}, // a round, and two with four stripes
		{199 * 256, 1, false}, {264 * 256, 1, false}, // two rounds of either kind
		{265 * 256, 1, true}, {396 * 256, 1, true}, // two rounds, and three
		{397 * 256, 1, true}, {505 * 256, 1, true}, // three rounds, and four
		{24576, 4, true}, {8192, 4, false}, {7168, 8, false},
	} {
		if got := packedFewMatrixFits(c.columns, c.parts); got != c.want {
			t.Errorf("%d columns, %d parts of k: %t, want %t", c.columns, c.parts, got, c.want)
		}
	}
}
