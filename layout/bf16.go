package layout

import (
	"encoding/binary"

	"sparrow/internal/num"
)

// Offsets and bytes of a BF16Row1152 row: 512 latent values and 64 rope values, 2 bytes each.
const (
	BF16RopeOffset = LatentDim * 2              // 1024
	BF16RowBytes   = BF16RopeOffset + RopeDim*2 // 1024 + 128 = 1152
)

// BF16 is the layout BF16Row1152: 576 bf16 values, latent then rope. Encode rounds to nearest, ties to even.
type BF16 struct{}

// Kind returns BF16Row1152.
func (BF16) Kind() Kind { return BF16Row1152 }

// RowBytes returns the size of a row, 1152 bytes.
func (BF16) RowBytes() int { return BF16RowBytes }

// PageBytes returns the size of a page, 1152 bytes per token.
func (BF16) PageBytes(tokens int) int { return tokens * BF16RowBytes }

// Encode implements Main.
func (BF16) Encode(page []byte, slot int, v []float32) {
	putBF16(row(BF16Row1152, page, slot, BF16RowBytes), values(BF16Row1152, v, RowDim))
}

// Decode implements Main without rounding.
func (BF16) Decode(v []float32, page []byte, slot int) {
	getBF16(values(BF16Row1152, v, RowDim), row(BF16Row1152, page, slot, BF16RowBytes))
}

// Latent returns the 512 bf16 values of a row's latent part, 1024 bytes.
func (BF16) Latent(row []byte) []byte { return row[:BF16RopeOffset:BF16RopeOffset] }

// Rope returns the 64 bf16 values of a row's rope part, 128 bytes.
func (BF16) Rope(row []byte) []byte { return row[BF16RopeOffset:BF16RowBytes:BF16RowBytes] }

// putBF16 converts v to bf16 and writes it to dst.
func putBF16(dst []byte, v []float32) {
	dst = dst[:len(v)*2]
	for i, f := range v {
		binary.LittleEndian.PutUint16(dst[i*2:], num.BF16(f))
	}
}

// getBF16 reads len(v) bf16 values from src, four per load; a bf16 is the upper half of a float32. len(v) is a multiple
// of four.
func getBF16(v []float32, src []byte) {
	src = src[:len(v)*2]
	for ; len(v) >= 4 && len(src) >= 8; v, src = v[4:], src[8:] {
		x := binary.LittleEndian.Uint64(src)
		v[0] = num.FromBF16(uint16(x))
		v[1] = num.FromBF16(uint16(x >> 16))
		v[2] = num.FromBF16(uint16(x >> 32))
		v[3] = num.FromBF16(uint16(x >> 48))
	}
}
