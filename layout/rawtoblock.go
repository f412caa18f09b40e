package layout

import "sparrow/internal/num"

// RawToBlock converts an FP8Row576 row to an FP8Row656 row. If kScale is a power of two, the conversion is exact: the
// 512 latent bytes are copied, the four scales are kScale, and the rope values are converted to bf16. Some engines
// cannot represent other scales; the latent values are then decoded and quantised again. The buffers must not overlap;
// RawToBlock panics if one is too short. A kScale of zero means 1, as in FP8Raw.
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
