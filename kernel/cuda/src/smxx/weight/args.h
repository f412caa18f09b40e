// Arguments of the kernels that generate random weights and convert matrices to the formats that matrix products read.
#pragma once
#include "smxx/base.h"

struct DrawArgs {
    void* out;  // [rows, columns] of `type`
    i64 stride; // elements between rows of out, even
    i64 rows;
    i64 columns; // even
    i64 first;       // index of the first value in the random sequence, even
    // Distance in the random sequence between the first values of two rows, even. A part of a matrix uses the distance
    // of the whole matrix, and then has the same values as in it.
    i64 from_stride;
    u64 seed;
    f32 mean;
    f32 step; // factor of the sum of four random bytes
    i32 type; // f32, bf16 or e4m3
    i32 reserved;
};

struct WidenArgs {
    const void* from;  // [rows, columns] of `type`, contiguous rows
    const f32* scales; // [ceil(rows/block_rows), scale_stride]; null: no scales
    u16* out;          // bf16 [rows, columns]; null: not written
    u16* turned;       // bf16 [columns, turned_stride] transposed matrix; null: not written
    i64 turned_stride;
    i32 rows;
    i32 columns;
    i32 scale_stride;
    i32 block_rows;
    i32 block_columns;
    i32 type; // f32, bf16, f16 or e4m3
};

struct MergeArgs {
    u8* codes;         // e4m3 [rows, columns], contiguous rows; rescaled in place
    const f32* scales; // [ceil(rows/block_rows), scale_stride]: powers of two
    f32* to;           // [ceil(rows/128), ceil(columns/128)]: the largest scale of each block
    i32 rows;
    i32 columns; // multiple of 4
    i32 scale_stride;
    i32 block_rows;    // divisor of 128
    i32 block_columns; // divisor of 128, multiple of 4
    i32 reserved;
};
