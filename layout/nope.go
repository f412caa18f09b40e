package layout

import "sparrow/internal/num"

// Bytes of rows of models whose keys have no rope values (GLM-5.3-Flash): only the 512 latent values.
const (
	NopeScaleOffset = LatentDim                 // 512
	NopeRowBytes    = NopeScaleOffset + Tiles*4 // 512 + 16 = 528
	NopeBF16Bytes   = LatentDim * 2             // 1024
	NopeF32Bytes    = LatentDim * 4             // 2048
)

// Width returns the number of values of a latent row: 576, or 512 for layouts without rope values.
func Width(k Kind) int {
	switch k {
	case FP8Row528, BF16Row1024, F32Row2048:
		return LatentDim
	}
	return RowDim
}

// NopeFP8 is the layout FP8Row528: 512 e4m3 values and one float32 scale per 128 of them, the first 528 bytes of an
// FP8Row656 row.
type NopeFP8 struct{}

// Kind returns FP8Row528.
func (NopeFP8) Kind() Kind { return FP8Row528 }

// RowBytes returns the size of a row, 528 bytes.
func (NopeFP8) RowBytes() int { return NopeRowBytes }

// PageBytes returns the size of a page, 528 bytes per token.
func (NopeFP8) PageBytes(tokens int) int { return tokens * NopeRowBytes }

// Encode implements Main with power-of-two scales.
func (NopeFP8) Encode(page []byte, slot int, v []float32) {
	quantBlock(row(FP8Row528, page, slot, NopeRowBytes), values(FP8Row528, v, LatentDim))
}

// Decode implements Main: the e4m3 value times its scale, rounded to float32.
func (NopeFP8) Decode(v []float32, page []byte, slot int) {
	v, b := values(FP8Row528, v, LatentDim), row(FP8Row528, page, slot, NopeRowBytes)
	for t := range Tiles {
		num.DequantE4M3(v[t*TileDim:], b[t*TileDim:(t+1)*TileDim], loadF32(b[NopeScaleOffset+t*4:]))
	}
}

// Scales returns the four scales of a row; scale j belongs to values 128j to 128j+127.
func (NopeFP8) Scales(row []byte) [Tiles]float32 {
	s := row[NopeScaleOffset:NopeRowBytes]
	return [Tiles]float32{loadF32(s), loadF32(s[4:]), loadF32(s[8:]), loadF32(s[12:])}
}

// NopeBF16 is the layout BF16Row1024: 512 bf16 values. Encode rounds to nearest, ties to even.
type NopeBF16 struct{}

// Kind returns BF16Row1024.
func (NopeBF16) Kind() Kind { return BF16Row1024 }

// RowBytes returns the size of a row, 1024 bytes.
func (NopeBF16) RowBytes() int { return NopeBF16Bytes }

// PageBytes returns the size of a page, 1024 bytes per token.
func (NopeBF16) PageBytes(tokens int) int { return tokens * NopeBF16Bytes }

// Encode implements Main.
func (NopeBF16) Encode(page []byte, slot int, v []float32) {
	putBF16(row(BF16Row1024, page, slot, NopeBF16Bytes), values(BF16Row1024, v, LatentDim))
}

// Decode implements Main without rounding.
func (NopeBF16) Decode(v []float32, page []byte, slot int) {
	getBF16(values(BF16Row1024, v, LatentDim), row(BF16Row1024, page, slot, NopeBF16Bytes))
}

// NopeF32 is the layout F32Row2048: 512 float32 values. It is exact, for verification.
type NopeF32 struct{}

// Kind returns F32Row2048.
func (NopeF32) Kind() Kind { return F32Row2048 }

// RowBytes returns the size of a row, 2048 bytes.
func (NopeF32) RowBytes() int { return NopeF32Bytes }

// PageBytes returns the size of a page, 2048 bytes per token.
func (NopeF32) PageBytes(tokens int) int { return tokens * NopeF32Bytes }

// Encode implements Main without rounding.
func (NopeF32) Encode(page []byte, slot int, v []float32) {
	putF32(row(F32Row2048, page, slot, NopeF32Bytes), values(F32Row2048, v, LatentDim))
}

// Decode implements Main without rounding.
func (NopeF32) Decode(v []float32, page []byte, slot int) {
	getF32(values(F32Row2048, v, LatentDim), row(F32Row2048, page, slot, NopeF32Bytes))
}
