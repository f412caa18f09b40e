package layout

import "sparrow/internal/num"

// RawRowBytes is the size of an FP8Row576 row in bytes: 512 e4m3 latent values and 64 e4m3 rope values.
const RawRowBytes = RowDim

// FP8Raw is the layout FP8Row576: latent and rope values as e4m3, with one scale for all rows, which is not stored in
// the cache. Values beyond ±448 times the scale are clipped.
type FP8Raw struct {
	// Scale is k_scale: values are e4m3 codes times Scale, including the rope part. Zero means 1.
	Scale float32
}

// Kind returns FP8Row576.
func (FP8Raw) Kind() Kind { return FP8Row576 }

// RowBytes returns the size of a row, 576 bytes.
func (FP8Raw) RowBytes() int { return RawRowBytes }

// PageBytes returns the size of a page, 576 bytes per token.
func (FP8Raw) PageBytes(tokens int) int { return tokens * RawRowBytes }

// Encode implements Main.
func (l FP8Raw) Encode(page []byte, slot int, v []float32) {
	quantRaw(row(FP8Row576, page, slot, RawRowBytes), values(FP8Row576, v, RowDim), kScaleOr1(l.Scale))
}

// Decode implements Main: the e4m3 value times the scale, rounded to float32.
func (l FP8Raw) Decode(v []float32, page []byte, slot int) {
	num.DequantE4M3(values(FP8Row576, v, RowDim), row(FP8Row576, page, slot, RawRowBytes), kScaleOr1(l.Scale))
}

// Latent returns the 512 e4m3 latent bytes of a row.
func (FP8Raw) Latent(row []byte) []byte { return row[:LatentDim:LatentDim] }

// Rope returns the 64 e4m3 rope bytes of a row.
func (FP8Raw) Rope(row []byte) []byte { return row[LatentDim:RawRowBytes:RawRowBytes] }

// quantRaw writes v/kScale as e4m3, clipped to ±448.
func quantRaw(dst []byte, v []float32, kScale float32) {
	dst = dst[:len(v)]
	for i, f := range v {
		dst[i] = num.E4M3(f / kScale)
	}
}

func kScaleOr1(s float32) float32 {
	if s == 0 {
		return 1
	}
	return s
}
