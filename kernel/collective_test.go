package kernel

import (
	"errors"
	"testing"
)

// shardCase describes a shard of a weight and the position of its first value and scale; a shard with from < 0 is
// refused.
type shardCase struct {
	from, to    int
	data, scale int64 // offset in bytes of the first value and of the first scale
	scales      int   // number of rows or columns of scales
	skip        int   // rows of the first block before the shard
	refused     bool
}

func TestShardsKeepBlocksOfScales(t *testing.T) {
	fp8 := Weight{BlockRows: 128, BlockCols: 128,
		Data:  Tensor{Buf: HostBuffer(make([]byte, 384*320)), DType: E4M3, Rows: 384, Cols: 320, Stride: 320},
		Scale: Tensor{Buf: HostBuffer(make([]byte, 4*3*3)), DType: F32, Rows: 3, Cols: 3, Stride: 3}}
	for _, c := range []shardCase{
		{from: 0, to: 384, scales: 3},
		{from: 128, to: 384, data: 128 * 320, scale: 4 * 3, scales: 2},
		{from: 256, to: 300, data: 256 * 320, scale: 4 * 6, scales: 1},
		{from: 64, to: 128, data: 64 * 320, scales: 1, skip: 64},
		{from: 160, to: 192, data: 160 * 320, scale: 4 * 3, scales: 1, skip: 32},
		{from: 192, to: 384, data: 192 * 320, scale: 4 * 3, scales: 2, skip: 64},
		{from: 0, to: 400, refused: true},
		{from: 5, to: 5, refused: true},
	} {
		w, err := fp8.Rows(c.from, c.to)
		if c.refused {
			if !errors.Is(err, ErrArgument) {
				t.Errorf("rows %d to %d: %v", c.from, c.to, err)
			}
			continue
		}
		if err != nil || w.Data.Off != c.data || w.Scale.Off != c.scale || w.Scale.Rows != c.scales ||
			w.SkipRows != c.skip || w.Out() != c.to-c.from || w.In() != 320 {
			t.Errorf("rows %d to %d: %+v, %v", c.from, c.to, w, err)
		}
		if err := w.Check(Projected); err != nil {
			t.Errorf("rows %d to %d: %v", c.from, c.to, err)
		}
	}
	for _, c := range []shardCase{
		{from: 0, to: 320, scales: 3},
		{from: 128, to: 256, data: 128, scale: 4, scales: 1},
		{from: 256, to: 320, data: 256, scale: 8, scales: 1},
		{from: 32, to: 64, data: 32, scales: 1},
		{from: 160, to: 320, refused: true},
	} {
		w, err := fp8.Columns(c.from, c.to)
		if c.refused {
			if !errors.Is(err, ErrArgument) {
				t.Errorf("columns %d to %d: %v", c.from, c.to, err)
			}
			continue
		}
		if err != nil || w.Data.Off != c.data || w.Scale.Off != c.scale || w.Scale.Cols != c.scales ||
			w.In() != c.to-c.from || w.Out() != 384 {
			t.Errorf("columns %d to %d: %+v, %v", c.from, c.to, w, err)
		}
		if err := w.Check(Projected); err != nil {
			t.Errorf("columns %d to %d: %v", c.from, c.to, err)
		}
	}
	fp4 := Weight{BlockRows: 1, BlockCols: 32,
		Data:  Tensor{Buf: HostBuffer(make([]byte, 4*64)), DType: E2M1x2, Rows: 4, Cols: 64, Stride: 64},
		Scale: Tensor{Buf: HostBuffer(make([]byte, 4*4)), DType: E8M0, Rows: 4, Cols: 4, Stride: 4}}
	if w, err := fp4.Columns(64, 128); err != nil || w.Data.Off != 32 || w.In() != 64 || w.Scale.Off != 2 ||
		w.Check(Projected) != nil {
		t.Errorf("fp4: %+v, %v", w, err)
	}
	if _, err := fp4.Columns(63, 64); !errors.Is(err, ErrArgument) {
		t.Errorf("half a byte: %v", err)
	}
}

// Rows and columns beyond the end of a weight are zeros and have as many scales as other rows and columns; rows and
// columns inside keep the values of the weight.
func TestPaddedParts(t *testing.T) {
	const rows, cols, block = 6, 8, 4
	w := Weight{BlockRows: block, BlockCols: block,
		Data:  Tensor{Buf: make(HostBuffer, rows*cols), DType: E4M3, Rows: rows, Cols: cols, Stride: cols},
		Scale: Tensor{Buf: make(HostBuffer, 4*2*2), DType: F32, Rows: 2, Cols: 2, Stride: 2}}
	for i := range w.Data.Buf.(HostBuffer) {
		w.Data.Buf.(HostBuffer)[i] = byte(i + 1)
	}
	for i := range w.Scale.Buf.(HostBuffer) {
		w.Scale.Buf.(HostBuffer)[i] = byte(100 + i)
	}
	at := func(t Tensor, row, col int) byte {
		return t.Buf.(HostBuffer)[int(t.Off)+(row*t.Stride+col)*t.DType.Size()]
	}
	for _, c := range []struct{ from, to, scales, skip int }{
		{4, 8, 1, 0}, {3, 7, 2, 3}, {6, 8, 1, 0}, {8, 13, 2, 0}, {2, 5, 2, 2},
	} {
		p, err := w.PaddedRows(c.from, c.to)
		if err != nil || p.Out() != c.to-c.from || p.In() != cols || p.Scale.Rows != c.scales || p.SkipRows != c.skip ||
			p.Check(Projected) != nil {
			t.Fatalf("rows %d to %d: %+v, %v, %v", c.from, c.to, p, err, p.Check(Projected))
		}
		for i := range p.Out() {
			own := c.from+i < rows
			if v := at(p.Data, i, 5); own != (v != 0) || own && v != at(w.Data, c.from+i, 5) {
				t.Errorf("rows %d to %d: row %d holds %d", c.from, c.to, i, v)
			}
			scale, _ := p.ScaleRow(i)
			if whole, _ := w.ScaleRow(c.from + i); own && at(p.Scale, scale, 1) != at(w.Scale, whole, 1) {
				t.Errorf("rows %d to %d: row %d has the wrong scale", c.from, c.to, i)
			}
		}
	}
	for _, c := range []struct{ from, to, scales int }{{4, 12, 2}, {7, 8, 1}, {8, 13, 2}, {0, 9, 3}, {9, 12, 1}} {
		p, err := w.PaddedColumns(c.from, c.to)
		if err != nil || p.In() != c.to-c.from || p.Out() != rows || p.Scale.Cols != c.scales ||
			p.Check(Projected) != nil {
			t.Fatalf("columns %d to %d: %+v, %v", c.from, c.to, p, err)
		}
		for i := range p.In() {
			own := c.from+i < cols
			if v := at(p.Data, 3, i); own != (v != 0) || own && v != at(w.Data, 3, c.from+i) {
				t.Errorf("columns %d to %d: column %d holds %d", c.from, c.to, i, v)
			}
		}
	}
	if _, err := w.PaddedColumns(6, 9); !errors.Is(err, ErrArgument) {
		t.Errorf("columns that begin inside a block and end after it: %v", err)
	}
}

// Each part of a weight has the zero points of its groups, and as many of them as scales.
func TestPartsHaveTheirZeroPoints(t *testing.T) {
	const rows, cols, group = 3, 8, 4
	w := Weight{BlockRows: 1, BlockCols: group,
		Data:  Tensor{Buf: make(HostBuffer, rows*cols), DType: U8, Rows: rows, Cols: cols, Stride: cols},
		Scale: Tensor{Buf: make(HostBuffer, 4*rows*2), DType: F32, Rows: rows, Cols: 2, Stride: 2},
		Zero:  Tensor{Buf: HostBuffer{1, 2, 3, 4, 5, 6}, DType: U8, Rows: rows, Cols: 2, Stride: 2}}
	sliced := func(from, to int) (Weight, error) { return w.Slice(from, to), nil }
	for _, c := range []struct {
		name      string
		part      func(from, to int) (Weight, error)
		from, to  int
		byColumns bool
	}{
		{"slice", sliced, 1, 3, false}, {"rows", w.Rows, 1, 3, false}, {"padded rows", w.PaddedRows, 1, 5, false},
		{"only padding rows", w.PaddedRows, 3, 5, false}, {"columns", w.Columns, 4, 8, true},
		{"padded columns", w.PaddedColumns, 4, 16, true}, {"only padding columns", w.PaddedColumns, 8, 12, true},
	} {
		p, err := c.part(c.from, c.to)
		if err == nil {
			err = p.Check(Projected)
		}
		if err != nil || p.Zero.Rows != p.Scale.Rows || p.Zero.Cols != p.Scale.Cols {
			t.Errorf("%s: %+v, %v", c.name, p, err)
			continue
		}
		firstRow, firstCol := c.from, 0
		if c.byColumns {
			firstRow, firstCol = 0, c.from/group
		}
		for row := range p.Zero.Rows {
			for col := range p.Zero.Cols {
				want := byte(0) // of padding
				if r, g := firstRow+row, firstCol+col; r < rows && g < 2 {
					want = w.Zero.Buf.(HostBuffer)[2*r+g]
				}
				if got := p.Zero.Buf.(HostBuffer)[int(p.Zero.Off)+row*p.Zero.Stride+col]; got != want {
					t.Errorf("%s: zero point [%d, %d] is %d, want %d", c.name, row, col, got, want)
				}
			}
		}
	}
}

// Slices take their whole blocks of scales: the last block may have fewer rows.
func TestSlicesHaveTheirScales(t *testing.T) {
	w := Weight{BlockRows: 4, BlockCols: 8,
		Data:  Tensor{Buf: make(HostBuffer, 14*8), DType: E4M3, Rows: 14, Cols: 8, Stride: 8},
		Scale: Tensor{Buf: make(HostBuffer, 4*4), DType: F32, Rows: 4, Cols: 1, Stride: 1}}
	for _, c := range []struct {
		from, to, scales int
		scale            int64
	}{{0, 14, 4, 0}, {0, 8, 2, 0}, {4, 6, 1, 4}, {4, 9, 2, 4}, {12, 14, 1, 12}} {
		p := w.Slice(c.from, c.to)
		if p.Out() != c.to-c.from || p.Scale.Rows != c.scales || p.Scale.Off != c.scale || p.Check(Projected) != nil {
			t.Errorf("rows %d to %d: %+v, %v", c.from, c.to, p, p.Check(Projected))
		}
	}
}

func TestParts(t *testing.T) {
	alone := Member{}
	if from, to := alone.Share(7); from != 0 || to != 7 || alone.Part(7) != (Part{}) || alone.Count() != 1 {
		t.Errorf("alone: %d to %d, %+v", from, to, alone.Part(7))
	}
	second := Member{Rank: 1, Ranks: 4}
	if from, to := second.Share(8); from != 2 || to != 4 || second.Part(8) != (Part{First: 2, Of: 8}) {
		t.Errorf("second of four: %d to %d, %+v", from, to, second.Part(8))
	}
	p := second.Part(8)
	for id, want := range map[int]int{2: 0, 3: 1} {
		if got, here := p.Local(id, 2); !here || got != want {
			t.Errorf("%d: %d, %v", id, got, here)
		}
	}
	for _, id := range []int{0, 1, 4, 7} {
		if _, here := p.Local(id, 2); here || !p.Valid(id, 2) {
			t.Errorf("%d is here, or not valid", id)
		}
	}
	if p.Valid(8, 2) || p.Valid(-1, 2) {
		t.Error("8 or -1 is valid")
	}
}
