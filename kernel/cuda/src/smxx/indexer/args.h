// Arguments of the kernels that prepare indexer keys and queries.
#pragma once
#include "smxx/views.h"

// Options for preparing an indexer vector of 128 values for the FP8 score kernels. The keys and queries of a model must
// use the same options.
struct IndexRecipeView {
    i32 rope_at;     // first of the 64 rotated dimensions: 0 (V3.2, GLM) or 64 (V4)
    i32 interleaved; // rotated pairs: 1 (2i, 2i+1), 0 (i, i+32)
    i32 hadamard;    // 1: rotate by the normalised Hadamard matrix, 0: no Hadamard transform
    i32 exact_scale; // 1: scale amax/448, 0: that value rounded up to a power of two
};

struct WriteIndexKeyArgs {
    PoolView pool; // pages of page_tokens keys of 128 bytes, then page_tokens float32 scales
    RotaryView rotary;
    IndexRecipeView recipe;
    const u16* keys;      // bf16 [tokens, 128]
    const f32* gamma;     // f32 [128] weight of the norm; null: the keys are already normalised
    const f32* beta;      // f32 [128] bias of the LayerNorm; null: RMSNorm
    const i32* positions; // [tokens]
    const i32* slots;     // [tokens]; negative: do not write
    u32* faults;          // one word of fault bits, or null
    f64 epsilon;          // epsilon of the norm
    i64 key_stride;       // elements between tokens, multiple of 4
    i32 tokens;
    i32 reserved;
};

struct IndexQueryArgs {
    RotaryView rotary;
    IndexRecipeView recipe;
    const u16* queries;   // bf16 [tokens, heads, 128]
    const f32* weights;   // [tokens, heads]
    const i32* positions; // [tokens]
    u8* codes;            // e4m3 [tokens, padded_heads, 128]; heads beyond `heads` are zero
    f32* folded;          // [tokens, padded_heads]: weight * weight_scale * query scale; 0 beyond `heads`
    u32* faults;          // one word of fault bits, or null
    i64 query_stride;     // elements between tokens, multiple of 4
    i64 weight_stride;    // elements between tokens
    i32 tokens;
    i32 heads;
    i32 padded_heads;     // at least heads
    f32 weight_scale;     // heads^-1/2 * 128^-1/2
};

struct GatherIndexSlotsArgs {
    PoolView pool;
    SlotListView source;
    u8* keys;    // e4m3 [count, 128]
    f32* scales; // [count]
    u32* faults; // one word of fault bits, or null
    i32 count;
    i32 reserved;
};

struct GatherIndexPagesArgs {
    PoolView pool;
    PageTableView source;
    u8* keys;    // e4m3 [count, 128]
    f32* scales; // [count]
    u32* faults; // one word of fault bits, or null
    i32 count;
    i32 reserved;
};
