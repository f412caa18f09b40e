package layout

import "sparrow/internal/num"

// Offsets and bytes of an FP8Row656 row: 512 e4m3 values, 4 float32 scales, 64 bf16 rope values. 656 and 528 are
// multiples of 16, so that rows and their rope parts are 16-byte aligned if the page is.
const (
	BlockScaleOffset = LatentDim                   // 512
	BlockRopeOffset  = BlockScaleOffset + Tiles*4  // 528
	BlockRowBytes    = BlockRopeOffset + RopeDim*2 // 512 + 16 + 128 = 656
)

// FP8Block is the layout FP8Row656: the latent as e4m3 with one float32 scale per 128 values, the rope part as bf16.
//
// Encode writes only power-of-two scales, because some engines store them in 8 bits; Decode accepts all scales. To get
// the bytes of an engine with bf16 activations, round the row to bf16 before Encode.
type FP8Block struct{}

// Kind returns FP8Row656.
func (FP8Block) Kind() Kind { return FP8Row656 }

// RowBytes returns the size of a row, 656 bytes.
func (FP8Block) RowBytes() int { return BlockRowBytes }

// PageBytes returns the size of a page, 656 bytes per token.
func (FP8Block) PageBytes(tokens int) int { return tokens * BlockRowBytes }

// Encode implements Main. A NaN is encoded as NaN and does not affect the scale of its tile.
func (FP8Block) Encode(page []byte, slot int, v []float32) {
	v = values(FP8Row656, v, RowDim)
	b := row(FP8Row656, page, slot, BlockRowBytes)
	quantBlock(b, v[:LatentDim])
	putBF16(b[BlockRopeOffset:], v[LatentDim:])
}

// Decode implements Main: the e4m3 value times the scale, rounded to float32 (exact for power-of-two scales).
func (FP8Block) Decode(v []float32, page []byte, slot int) {
	v = values(FP8Row656, v, RowDim)
	b := row(FP8Row656, page, slot, BlockRowBytes)
	for t := range Tiles {
		scale := loadF32(b[BlockScaleOffset+t*4:])
		num.DequantE4M3(v[t*TileDim:], b[t*TileDim:(t+1)*TileDim], scale)
	}
	getBF16(v[LatentDim:], b[BlockRopeOffset:])
}

// Latent returns the 512 e4m3 bytes of a row.
func (FP8Block) Latent(row []byte) []byte { return row[:BlockScaleOffset:BlockScaleOffset] }

// Scales returns the four scales of a row; scale j belongs to latent values 128j to 128j+127.
func (FP8Block) Scales(row []byte) [Tiles]float32 {
	s := row[BlockScaleOffset:BlockRopeOffset]
	return [Tiles]float32{loadF32(s), loadF32(s[4:]), loadF32(s[8:]), loadF32(s[12:])}
}

// Rope returns the 64 bf16 values of a row's rope part, 128 bytes.
func (FP8Block) Rope(row []byte) []byte { return row[BlockRopeOffset:BlockRowBytes:BlockRowBytes] }

// quantBlock writes the e4m3 bytes and the scales of one row.
func quantBlock(b []byte, latent []float32) {
	for t := range Tiles {
		scale := num.QuantLatent(b[t*TileDim:], latent[t*TileDim:(t+1)*TileDim])
		storeF32(b[BlockScaleOffset+t*4:], scale)
	}
}
