// Arguments of dense attention, passed by value as one __grid_constant__ parameter. They are mirrored in Go.
#pragma once

#include "ptx/types.h"

// Tensor maps over bf16 (cuTensorMapEncodeTiled), swizzle 128B, innermost dimension 64 columns = 128 bytes. D is the
// query head size, K the number of keys in a tile:
//   query  {64, rows, heads * D / 64},              box {64, 64, D / 64}
//   key    {64, keys, heads * (nope + values) / 64}, box {64, K, nope / 64}
//   rope   {64, keys},                               box {64, K}
//   value  as key,                                   box {64, K, values / 64}
struct DenseAttendArgs {
    TensorMap query_map;  // over q [rows, heads * (nope + 64)], rotated
    // Over kv [keys, heads * (nope + values)]: for each head the key columns, then the value columns.
    TensorMap key_map;
    TensorMap rope_map;   // over rotated keys [keys, 64], shared by all heads
    TensorMap value_map;  // over kv
    const i32* start;     // [rows, start_stride] first key that a row attends to
    // [rows, len_stride] number of keys that a row attends to; adjacent rows with equal start share tiles.
    const i32* lens;
    u16* out;             // bf16 [rows, out_stride]: `values` columns per head; a multiple of 16 bytes
    float* lse;           // f32 [rows, lse_stride] natural logarithm, +inf for a row without keys; or null
    // The output of plan.cuh: 4 words, then 4 words for each tile of rows and for one last record; at most rows + 1
    // records.
    u32* plan;
    // One word: bit 2 is set if a row has keys outside [0, keys), and such a row is treated as a row without keys; or
    // null.
    u32* faults;
    i64 start_stride;     // elements between rows
    i64 len_stride;
    i64 out_stride;
    i64 lse_stride;
    i32 rows;
    i32 keys;
    i32 heads;
    float score_scale;  // factor of q . k, includes log2(e); positive
};
static_assert(sizeof(DenseAttendArgs) == 640, "mirrored in Go");
