// Package layout turns rows of float32 into the bytes of a KV cache and back, one type per byte layout.
//
// The input is rows of values (a latent row of 576, an indexer key of 128, or a V4 entry of 512) and the page of bytes
// they belong to; the output is the bytes, or the values that they encode. The value of a row is by definition the
// result of Decode. The package has no policy: it never chooses a layout.
//
// DeepSeek-V4 has entries of 512 values (type V4): 448 without position, then 64 rope values. An entry is both key and
// value.
//
// A row of 576 values is 512 latent values followed by 64 rope values in kernel order (pairs interleaved). All
// multi-byte fields are little-endian. docs/format draws every layout.
package layout

// Sizes shared by every layout, in values unless named otherwise.
const (
	LatentDim  = 512                 // compressed key/value latent
	RopeDim    = 64                  // rotary part of the key
	RowDim     = LatentDim + RopeDim // 576
	IndexDim   = 128                 // indexer key
	PageTokens = 64                  // tokens per page of a pool
	TileDim    = 128                 // latent values that share one scale in FP8Block
	Tiles      = LatentDim / TileDim // 4
)
