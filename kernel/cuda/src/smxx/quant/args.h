// Arguments of the kernels that quantise rows for matrix products.
#pragma once
#include "smxx/base.h"

struct QuantiseRowsArgs {
    const u16* x;     // bf16 [rows, columns]
    u8* codes;        // e4m3 [rows, columns]
    f32* scales;      // f32 [ceil(columns / 128), scale_stride] one scale per 128 columns of every row
    i64 x_stride;     // elements between rows of x; the other strides are also in elements
    i64 code_stride;
    i64 scale_stride;
    i32 rows;
    i32 columns;      // multiple of 16
    i32 exact;        // 1: scales are arbitrary f32; 0: scales are powers of two
    i32 reserved;
};

struct NormQuantiseArgs {
    const u16* x;       // bf16 [rows, columns]
    const u16* delta;   // bf16 [rows, columns] added to x first; or null
    const u16* results; // bf16 [rows, top, columns] results of experts, whose weighted sum is added next; or null
    const i32* ids;     // [rows, top] experts, with results; an id outside the experts adds nothing
    const f32* shares;  // [rows, top] weights of the sum, with results
    u16* sum;           // bf16 [rows, columns] x + delta + weighted sum; may be the memory of x or delta; or null
    const void* weight; // f32 or bf16 [columns] weight of the RMSNorm; null: no norm
    u16* out;           // bf16 [rows, columns] norm of the sum; or null
    u8* codes;          // e4m3 [rows, columns] codes of the norm; or null
    f32* scales;        // [ceil(columns / 128), scale_stride] scales of codes
    f64 epsilon;
    i64 x_stride;       // elements between rows of x; the other strides are also in elements
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
    i32 exact;          // 1: scales are arbitrary f32; 0: scales are powers of two
    i32 top;
    i32 experts;
};
