// Arguments of the kernel that samples tokens.
#pragma once
#include "smxx/base.h"

struct SampleArgs {
    const f32* logits; // [rows, columns]
    const i32* draws;  // [rows, 10] sampling parameters and random number of each row (Draw)
    const i32* best;   // [rows] column of the largest logit
    i32* ids;          // [rows] sampled column; may be the memory of best
    i64 stride;        // elements between rows of logits
    i64 id_stride;     // entries between ids
    i32 rows;
    i32 columns; // at most 262144
};
