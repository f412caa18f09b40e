// Arguments of the paged index-score kernels, passed by value as one __grid_constant__ parameter. They are mirrored
// in Go.
#pragma once

#include "ptx/types.h"

// Tensor maps (cuTensorMapEncodeTiled), H = heads of the kernel, stride = bytes between pages (8448 or more, multiple
// of 16):
//   query  UINT8, rank 2, dims {128, requests * next_n * H}, stride {128}, box {128, next_n * H}, swizzle 128B,
//          address of q
//   keys   UINT8, rank 3, dims {128, 64, pages}, strides {128, stride}, box {128, 64, 1}, swizzle 128B, address of
//          the cache
//   scales FLOAT32, rank 2, dims {64, pages}, stride {stride}, box {64, 1}, no swizzle, address of the cache + 8192
struct IndexPagedArgs {
    TensorMap query_map;         // over q e4m3 [requests, next_n, H, 128]
    // Over the key bytes of the cache, u8 [pages, 8448]: 64 keys x 128 bytes, then 64 f32 scales.
    TensorMap keys_map;
    TensorMap scales_map;        // over the scales of the cache
    const float* weights;        // f32 [requests * next_n, H], 16-byte aligned
    // i32 [requests, next_n]: number of keys of each query row; 0 or less: the row is empty.
    const i32* context_lengths;
    // i32 [tables, table_stride]: the physical page of each logical page. A page outside the pool reads as zeros.
    const i32* block_table;
    // i32 [requests, next_n]: the row of block_table for each query row; the first entry of a request is used. Null:
    // request r has row r.
    const i32* table_rows;
    // f32 [requests * next_n, stride]; the column is the logical position. Only columns below the length of the row
    // are written.
    float* scores;
    i64 stride;                  // floats between rows of scores
    i64 table_stride;            // entries between rows of block_table
    i32 requests;                // number of requests
    i32 next_n;                  // query rows per request, at most Rows of the kernel
    i32 max_context;             // columns of scores; context lengths are clipped to it
    i32 max_blocks;              // entries of a row of block_table; context lengths are clipped to 64 * max_blocks
    i32 skip;                    // rows with at most this many keys are treated as empty
    i32 reserved;
};
static_assert(sizeof(IndexPagedArgs) == 512, "mirrored in Go");
