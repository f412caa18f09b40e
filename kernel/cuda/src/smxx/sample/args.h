// Argument struct of the kernel that samples tokens.
#pragma once
#include "smxx/base.h"

struct SampleArgs {
    const f32* logits; // [rows, columns]
    const i32* draws;  // [rows, 10]: words of a draw
    const i32* best;   // [rows]: the best column of the row
    i32* ids;          // [rows]: the one that was drawn; may be best itself
    i64 stride;        // elements between rows of logits
    i64 id_stride;     // entries between rows
    i32 rows;
    i32 columns; // at most 262144
};
