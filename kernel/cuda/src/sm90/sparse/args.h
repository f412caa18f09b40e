// Arguments of sparse attention, passed by value as one __grid_constant__ parameter. They are mirrored in Go.
#pragma once

#include "ptx/types.h"

// Selected rows of one paged pool. Slot s is row s & page_mask of page s >> page_shift; a pool of one page has shift
// 31 and mask 2^31 - 1. For kernels that attend to every key (sm90/latent), indices are page tables with pages of 64
// rows; their second stream has width 0, and its lens are the table numbers of the rows.
struct SelectionView {
    const u8* base;      // first byte of page 0, multiple of 16
    i64 page_bytes;      // from one page to the next, multiple of 16
    const i32* indices;  // [rows, index_stride]: slots; below zero: not attended to; at and beyond slots: a fault, too
    const i32* lens;     // [rows, len_stride]: how many leading entries count, clipped to [0, width]
    i64 index_stride;
    i64 len_stride;
    i32 slots;  // rows of the pool
    i32 width;  // entries of a row of indices; 0: the stream is not there
    i32 page_shift;
    i32 page_mask;
    // 584-byte entries: bytes from the start of a page to its scales; rows of V4.1: bytes of a row
    i64 scales;
};
static_assert(sizeof(SelectionView) == 72, "mirrored in Go");

struct SparseAttendArgs {
    SelectionView streams[2];  // read in this order, one softmax; only V4 has a second
    const u16* q;              // bf16 [rows, q_stride]: heads of D values each, multiple of 16 bytes
    u16* out;                  // bf16 [rows, out_stride]: heads of 512 values each, multiple of 16 bytes
    float* lse;                // f32 [rows, lse_stride], natural logarithm, without the sink; or null
    float* max;                // f32 [rows, max_stride], largest scaled score; or null
    const float* sinks;        // f32 [heads], neither scaled nor in base 2; or null
    // If segments > 1, the partial results (output.cuh): [rows, segments, heads in whole groups of 64, 512] values.
    void* partial;
    // If segments > 1, f32 [rows, segments, heads, 4]: base of the exponents, sum, largest score (base 2), unused.
    float* stats;
    u32* faults;               // one word: bit 0 is set when a slot is at or beyond its pool; or null
    i64 q_stride;              // elements between rows
    i64 out_stride;
    i64 lse_stride;
    i64 max_stride;
    i32 rows;
    i32 heads;
    i32 segments;        // most segments of a row; 1: no combine follows
    i32 segment_blocks;  // blocks of 64 keys in one segment
    float score_scale;   // of q . row, times log2(e)
    float value_scale;   // of the result: what stored values are multiplied by, 1 unless the layout leaves it out
};
static_assert(sizeof(SparseAttendArgs) == 264, "mirrored in Go");

// For the kernels of bf16 rows: the copy engine transfers queries and outputs, so that they do not wait behind the
// copies of rows in the load-store unit.
struct MappedAttendArgs {
    TensorMap query_map;   // over q as bf16 [rows, heads, D], boxes {64, 64, 1}, swizzle 128B
    TensorMap output_map;  // over out as bf16 [rows, heads, 512], boxes {64, 64, 1}, swizzle 128B
    SparseAttendArgs attend;
    u64 reserved[7];
};
static_assert(sizeof(MappedAttendArgs) == 576, "mirrored in Go");
