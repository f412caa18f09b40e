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

// The bands of a product are adjacent: each has the tiles, scales and result columns after those of the band before it,
// and all use the same scratch memory.
func TestFoldedBandsAreAdjacent(t *testing.T) {
	const rows, columns, k, scratch = 65, 20000, 16384, Ptr(1 << 41)
	for _, wide := range []bool{false, true} {
		x := Product{Type: ProductFP8, Weight: 1 << 42, WeightScales: 1 << 43, Input: 1 << 44, InputScales: 1 << 45,
			Out: 1 << 46, InputStride: k, ScaleStride: 80, OutStride: columns, Rows: rows, Columns: columns, K: k,
			Batch: 1, Whole: columns, OutF32: wide}
		d := OpenDetached(H200)
		f, err := x.EncodeFolded(d, scratch)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.calls) != 3 || len(f.unfold) != 3 {
			t.Fatalf("%d bands, want 3", len(f.calls))
		}
		size := int64(2)
		if wide {
			size = 4
		}
		first := int64(0)
		for i, u := range f.unfold {
			each := min(8192, columns-first)
			want := UnfoldArgs{From: x.Weight.Add(first / 256 * 128 * foldedTileBytes), To: scratch, Stride: k,
				Rows: int32(each), Columns: k, Tiles: int32((each + 255) / 256), Blocks: 128}
			if u != want {
				t.Errorf("band %d unfolds %+v, want %+v", i, u, want)
			}
			a := f.calls[i].Args
			base, dims, _ := a.WeightMap.Plain()
			if a.Out != x.Out.Add(first*size) || a.WeightScales != x.WeightScales.Add(first/128*128*4) ||
				base != scratch || dims[1] != uint64(each) {
				t.Errorf("band %d: out %#x, scales %#x, weight %#x %v", i, a.Out, a.WeightScales, base, dims)
			}
			first += each
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
