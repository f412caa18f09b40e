// Arguments of the low-rank matrix product that is added to its output.
#pragma once
#include "smxx/base.h"

struct LowRankArgs {
    const u16* weight; // bf16 [columns, k]; this and the address of input are multiples of 16
    const u16* input;  // bf16 [rows, k]
    f32* out;          // [rows, columns]
    i64 weight_stride; // elements between rows of weight, multiple of 8
    i64 input_stride;  // elements between rows of input, multiple of 8
    i64 out_stride;    // elements between rows of out
    i32 rows;
    i32 columns;
    i32 k; // multiple of 8, at most 512
    i32 reserved;
};
