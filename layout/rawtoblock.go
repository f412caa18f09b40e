package layout

import "sparrow/internal/num"

// RawToBlock rewrites a 576-byte row as a 656-byte row. If kScale is a power of two, the conversion is exact: the 512
// latent bytes are copied, the four scales are kScale, and the rope part is widened to bf16. Any other kScale would
// give scales that some readers cannot represent, so the latent is converted to float32 and quantised again. The
// buffers must not overlap; if one is too short, RawToBlock panics like Encode. A kScale of zero means 1, as in FP8Raw.
func RawToBlock(dst656, src576 []byte, kScale float32) {
	kScale = kScaleOr1(kScale)
	d, s := row(FP8Row656, dst656, 0, BlockRowBytes), row(FP8Row576, src576, 0, RawRowBytes)
	var v [RowDim]float32
	num.DequantE4M3(v[:], s, kScale)
	putBF16(d[BlockRopeOffset:], v[LatentDim:])
	if !num.IsPow2(kScale) {
		quantBlock(d, v[:LatentDim])
		return
	}
	copy(d[:LatentDim], s)
	for t := range Tiles {
		storeF32(d[BlockScaleOffset+t*4:], kScale)
	}
}
