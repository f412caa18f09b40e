// Package layout converts rows of float32 values to the bytes of a KV cache and back. It has one type per byte layout.
//
// Encode writes a row of values (576 of a latent row, 128 of an indexer key, or 512 of a V4 entry) to a page of bytes;
// Decode reads it. The value of a row is by definition the result of Decode. The package does not choose layouts.
//
// DeepSeek-V4 has entries of 512 values (type V4): 448 without rotary embedding, then 64 with it (rope). An entry is
// both key and value.
//
// A latent row is 512 latent values, then 64 rope values with interleaved pairs. All multi-byte fields are
// little-endian. docs/format has a drawing of every layout.
package layout

// Sizes that layouts share, in values unless stated otherwise.
const (
	LatentDim  = 512                 // latent (compressed) values of keys and values
	RopeDim    = 64                  // values with rotary embedding
	RowDim     = LatentDim + RopeDim // 576
	IndexDim   = 128                 // values of an indexer key
	PageTokens = 64                  // tokens per page of a pool
	TileDim    = 128                 // latent values per scale in FP8Block
	Tiles      = LatentDim / TileDim // 4
)
