// Arguments of the kernels that copy and add rows.
#pragma once
#include "smxx/base.h"

struct MoveArgs {
    const void* x;  // [rows, columns] of x_type
    void* out;      // [rows, columns] of out_type
    i64 x_stride;   // elements between rows of x
    i64 out_stride; // elements between rows of out
    i64 rows;
    i32 columns;
    i32 x_type;     // f32 or bf16
    i32 out_type;   // f32 or bf16
    i32 add;        // 1: out += x, 0: out = x
};
