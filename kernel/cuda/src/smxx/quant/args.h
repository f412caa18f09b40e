// Argument structs of the kernels that quantise rows for products.
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
    u16* sum;           // bf16 [rows, columns]: x + delta, may be x or delta itself; or null
    const void* weight; // f32 or bf16 [columns]
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
    i32 rows;
    i32 columns;        // multiple of 16, at most 16384
    i32 weight_bf16;    // 1: the weight is bf16
    i32 exact;          // 1: scales are any f32, 0: powers of two
};
