package cuda

import "testing"

// Scratch memory holds the codes of folded weights in bands of whole tiles. A band has at most 128 MiB if one tile is
// smaller than that.
func TestFoldedBands(t *testing.T) {
	for _, c := range []struct {
		rows, columns, k int32
		want             int64
	}{
		{64, 24576, 16384, 0},
		{65, 24576, 16384, 128 << 20},
		{65, 24576, 7168, 18688 * 7168}, // 73 tiles
		{4096, 300, 2048, 512 * 2048},
		{4096, 2112, 7168, 2304 * 7168},
	} {
		x := Product{Rows: c.rows, Columns: c.columns, K: c.k}
		if got := x.UnfoldedBytes(); got != c.want {
			t.Errorf("%d rows, %d x %d: %d bytes of codes, want %d", c.rows, c.columns, c.k, got, c.want)
		}
	}
}
