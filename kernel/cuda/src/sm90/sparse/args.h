// Arguments of sparse attention, passed by value as one __grid_constant__ parameter. They are mirrored in Go.
#pragma once

#include "ptx/types.h"

// Selected rows of one paged pool. Slot s is row s & page_mask of page s >> page_shift; a pool of one page has shift
// 31 and mask 2^31 - 1. For kernels that attend to every key (sm90/latent), indices are page tables with pages of 64
// rows; their second stream has width 0, and its lens are the table numbers of the rows.
struct SelectionView {
    const u8* base;      // address of page 0, multiple of 16
    i64 page_bytes;      // bytes between the starts of two pages, multiple of 16
    // [rows, index_stride] slots; negative: not attended to; >= slots: not attended to, and sets a fault
    const i32* indices;
    const i32* lens;     // [rows, len_stride] number of leading entries of indices that are used, clipped to [0, width]
    i64 index_stride;
    i64 len_stride;
    i32 slots;  // rows of the pool
    i32 width;  // entries of a row of indices; 0: the stream does not exist
    i32 page_shift;
    i32 page_mask;
    // 584-byte entries: byte offset of the scales from the start of a page. Rows of V4.1: bytes per row.
    i64 scales;
};
static_assert(sizeof(SelectionView) == 72, "mirrored in Go");

struct SparseAttendArgs {
    SelectionView streams[2];  // read in this order, normalised by one softmax; only V4 and V4.1 have a second stream
    const u16* q;              // bf16 [rows, q_stride]: D values per head; a multiple of 16 bytes
    u16* out;                  // bf16 [rows, out_stride]: 512 values per head; a multiple of 16 bytes
    float* lse;  // f32 [rows, lse_stride] natural logarithm of the sum of exponentials, without the sink; or null
    float* max;                // f32 [rows, max_stride], largest scaled score; or null
    const float* sinks;        // f32 [heads] sink logits, natural base, not multiplied by score_scale; or null
    // If segments > 1, the partial results (output.cuh): [rows, segments, heads in whole groups of 64, 512] values.
    void* partial;
    // If segments > 1, f32 [rows, segments, heads, 4]: base of the exponents, sum, largest score (base 2), and an
    // unused value.
    float* stats;
    u32* faults;               // one word: bit 0 is set when a slot is >= slots of its pool; or null
    i64 q_stride;              // elements between rows
    i64 out_stride;
    i64 lse_stride;
    i64 max_stride;
    i32 rows;
    i32 heads;
    i32 segments;        // maximum number of segments of a row; 1: output is final, no combine kernel follows
    i32 segment_blocks;  // blocks of 64 keys in one segment
    float score_scale;   // factor of q . row, includes log2(e)
    float value_scale;   // factor of the output: the scale of stored values if the row layout has none, else 1
};
static_assert(sizeof(SparseAttendArgs) == 264, "mirrored in Go");

// Arguments of the kernels for bf16 rows. The copy engine (TMA) transfers queries and outputs, so that these copies do
// not queue behind the copies of rows in the load-store unit.
struct MappedAttendArgs {
    TensorMap query_map;   // over q as bf16 [rows, heads, D], boxes {64, 64, 1}, swizzle 128B
    TensorMap output_map;  // over out as bf16 [rows, heads, 512], boxes {64, 64, 1}, swizzle 128B
    SparseAttendArgs attend;
    u64 reserved[7];
};
static_assert(sizeof(MappedAttendArgs) == 576, "mirrored in Go");
