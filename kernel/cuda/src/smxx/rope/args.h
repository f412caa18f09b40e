// Arguments of the kernels that compute rotation angles and apply them.
#pragma once
#include "smxx/base.h"

struct AnglesArgs {
    const i32* positions; // [rows]
    const f32* frequency; // [count]
    f32* out;             // [rows, 2 * count]: cosines, then sines
    i64 position_stride;  // entries between positions
    i64 out_stride;       // elements between rows of out
    i32 rows;
    i32 count;
    f32 scale;
    i32 reserved;
};

struct RotateArgs {
    void* x;           // [rows, heads, head_dim] of x_type, rotated in place
    const f32* angles; // [rows, rope]: rope / 2 cosines, then sines; null: no rotation
    void* copy;        // [rows, heads, copy_dim] of x_type: the rotated columns are also written here; or null
    i64 x_stride;      // elements between rows of x
    i64 angle_stride;  // elements between rows of angles
    i64 copy_stride;   // elements between rows of copy
    i32 rows;
    i32 heads;
    i32 head_dim;
    i32 offset;      // first rotated column of a head
    i32 rope;        // rotated columns, even
    i32 x_type;      // f32 or bf16
    i32 interleaved; // 1: pairs (2i, 2i + 1); 0: (i, i + rope / 2)
    i32 inverse;     // 1: rotate by the negative angle
    i32 copy_dim;
    i32 copy_offset; // first rotated column in a head of copy
};
