package kernel

import (
	"errors"
	"testing"
)

// shardCase is a cut of a weight, and where its first value and scale are; from < 0 is refused.
type shardCase struct {
	from, to    int
	data, scale int64 // bytes before the first value and the first scale
	scales      int   // rows or columns of scales
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
