package layout

import "sparrow/internal/num"

// The functions here rewrite one row. They allocate nothing, need buffers that do not overlap, and panic like Encode on
// a short buffer. A kScale of zero means 1, as in FP8Raw.

// RawToBlock rewrites a 576-byte row as a 656-byte row. Where kScale is a power of two the 512 latent bytes are kept,
// the four scales are kScale and the rope part is widened to bf16: every value is kept. Any other kScale would make
// scales that some readers cannot hold, so the latent goes through float32 and is quantised anew.
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

// BlockToRaw rewrites a 656-byte row as a 576-byte row, which loses precision: magnitudes up to 2^-10*kScale become
// zero, those above 448*kScale are clipped, and the rope part falls from 8 significant bits to 4. Without lossy it
// refuses with ErrLossy; an unusable kScale gives ErrScale.
func BlockToRaw(dst576, src656 []byte, kScale float32, lossy bool) error {
	kScale = kScaleOr1(kScale)
	if !lossy {
		return lossError(FP8Row656, FP8Row576)
	}
	if err := checkKScale(kScale); err != nil {
		return err
	}
	var v [RowDim]float32
	FP8Block{}.Decode(v[:], src656, 0)
	FP8Raw{Scale: kScale}.Encode(dst576, 0, v[:])
	return nil
}

// BF16ToBlock quantises the latent of a 1152-byte row and copies its rope bytes.
func BF16ToBlock(dst656, src1152 []byte) {
	d, s := row(FP8Row656, dst656, 0, BlockRowBytes), row(BF16Row1152, src1152, 0, BF16RowBytes)
	var v [LatentDim]float32
	getBF16(v[:], s)
	quantBlock(d, v[:])
	copy(d[BlockRopeOffset:], s[BF16RopeOffset:])
}

// BlockToBF16 rewrites a 656-byte row as a 1152-byte row: e4m3 times scale in float32, rounded to bf16; rope bytes
// copied. Exact for power-of-two scales. Back through BF16ToBlock every value returns, though not every byte: a tile
// whose largest value had been rounded down to 224 scales returns with half the scale and doubled codes.
func BlockToBF16(dst1152, src656 []byte) {
	d, s := row(BF16Row1152, dst1152, 0, BF16RowBytes), row(FP8Row656, src656, 0, BlockRowBytes)
	var v [RowDim]float32
	FP8Block{}.Decode(v[:], s, 0)
	putBF16(d, v[:LatentDim])
	copy(d[BF16RopeOffset:], s[BlockRopeOffset:])
}

// BF16ToRaw quantises all 576 values of a 1152-byte row with one scale; values beyond 448*kScale are clipped.
func BF16ToRaw(dst576, src1152 []byte, kScale float32) {
	var v [RowDim]float32
	BF16{}.Decode(v[:], src1152, 0)
	FP8Raw{Scale: kScale}.Encode(dst576, 0, v[:])
}

// RawToBF16 rewrites a 576-byte row as a 1152-byte row: e4m3 times kScale in float32, rounded to bf16. Exact where
// kScale is a power of two.
func RawToBF16(dst1152, src576 []byte, kScale float32) {
	var v [RowDim]float32
	FP8Raw{Scale: kScale}.Decode(v[:], src576, 0)
	BF16{}.Encode(dst1152, 0, v[:])
}
