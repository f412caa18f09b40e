// Arguments of the ragged index-score kernels, passed by value as one __grid_constant__ parameter. They are mirrored
// in Go.
#pragma once

#include "ptx/types.h"

// Tensor maps (cuTensorMapEncodeTiled), H = heads of the kernel, R = 256 / H query rows per item:
//   query  UINT8, rank 2, dims {128, rows * H}, stride {128}, box {128, 256}, swizzle 128B, address of q
//   keys   UINT8, rank 2, dims {128, keys},     stride {128}, box {128, 64},  swizzle 128B, address of the key bytes
//   scales FLOAT32, rank 1, dims {keys}, box {64}, no swizzle, address of the key scales
struct IndexRaggedArgs {
    TensorMap query_map;   // over q e4m3 [rows, H, 128]
    TensorMap keys_map;    // over keys e4m3 [keys, 128]
    TensorMap scales_map;  // over f32 [keys]
    const float* weights;  // f32 [rows, H], 16-byte aligned
    const i32* key_start;  // i32 [rows]: first key of a row
    // i32 [rows]: one past the last key of the row or, with `lengths`, its number of keys. A row without keys is
    // empty.
    const i32* key_end;
    float* scores;         // f32 [rows, stride]; only columns of keys in [key_start, key_end) are written
    i64 stride;            // floats between rows of scores
    i32 rows;              // number of query rows
    i32 keys;              // number of keys; key ranges are clipped to [0, keys)
    i32 relative;          // 1: column c holds key key_start + c; 0: column c holds key c
    i32 lengths;           // 1: key_end holds the number of keys of each row
    i32 skip;              // rows with at most this many keys are treated as empty
    i32 reserved;
};
static_assert(sizeof(IndexRaggedArgs) == 448, "mirrored in Go");
