// Argument structs of the kernels that quantise rows for matrix products.
#pragma once
#include "smxx/base.h"

struct QuantiseRowsArgs {
    const u16* x;     // bf16 [rows, columns]
    u8* codes;        // e4m3 [rows, columns]
    f32* scales;      // [ceil(columns / 128), scale_stride]: of 128 columns of every row
    i64 x_stride;     // elements between rows, as the other strides
    i64 code_stride;
    i64 scale_stride;
    i32 rows;
    i32 columns;      // multiple of 16
    i32 exact;        // 1: scales are any f32, 0: powers of two
    i32 reserved;
};

struct NormQuantiseArgs {
    const u16* x;       // bf16 [rows, columns]
    const u16* delta;   // bf16 [rows, columns] that is added to x first; or null
    const u16* results; // bf16 [rows, top, columns] of experts, whose weighted sum is added then; or null
    const i32* ids;     // [rows, top], with results: a number that is none of the experts adds nothing
    const f32* shares;  // [rows, top], with results: the weights of the sum
    u16* sum;           // bf16 [rows, columns]: what was added up, may be x or delta itself; or null
    const void* weight; // f32 or bf16 [columns]; or null for no norm
    u16* out;           // bf16 [rows, columns]: the norm of the sum; or null
    u8* codes;          // e4m3 [rows, columns]: the norm quantised; or null
    f32* scales;        // [ceil(columns / 128), scale_stride], with codes
    f64 epsilon;
    i64 x_stride;       // elements between rows, as the other strides
    i64 delta_stride;
    i64 sum_stride;
    i64 out_stride;
    i64 code_stride;
    i64 scale_stride;
    i64 id_stride;
    i64 share_stride;
    i32 rows;
    i32 columns;        // multiple of 16, at most 16384
    i32 weight_bf16;    // 1: the weight is bf16
    i32 exact;          // 1: scales are any f32, 0: powers of two
    i32 top;
    i32 experts;
};
