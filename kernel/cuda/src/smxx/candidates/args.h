// Arguments of the kernels that find the largest logits of a row.
#pragma once
#include "smxx/base.h"

struct CandidatesArgs {
    const void* logits; // [rows, columns] of `type`
    i32* ids;           // [rows, best] columns of the largest logits, largest first
    f32* values;        // [rows, best] logits of ids
    f32* log_sum;       // [rows] logarithm of the sum of exponentials of the row
    u64* keys;          // [rows, parts, best] keys of the largest logits of each part, scratch
    float2* sums;       // [rows, parts] largest logit of a part, and sum of exponentials relative to it; scratch
    i64 stride;         // elements between rows of logits
    i64 id_stride;      // entries between rows of ids
    i64 value_stride;   // elements between rows of values
    i32 rows;
    i32 columns;
    i32 best;  // number of logits to find, at most 64 and at most columns
    i32 parts; // parts of 8192 columns per row, at most 32
    i32 type;  // f32 or bf16
    i32 reserved;
};
