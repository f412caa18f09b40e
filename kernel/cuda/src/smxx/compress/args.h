// Argument struct of the kernel that compresses groups of tokens into cache entries (v4 spec, 2.4).
#pragma once
#include "smxx/base.h"

struct CompressArgs {
    const f32* values;  // [rows, halves * columns]: raw rows of this pass
    const f32* gates;   // [rows, halves * columns]
    const f32* state;   // [state_rows, 2 * halves * columns]: raw rows of earlier passes, values before gates
    const f32* ape;     // [ratio, halves * columns]: added to gates
    const i32* sources; // [entries, halves * ratio]: row s, state row -2-s below -1, none for -1
    u16* out;           // bf16 [entries, columns]
    u32* faults;        // one word of fault bits, or null
    i64 value_stride;   // elements between rows, also below
    i64 gate_stride;
    i64 state_stride;
    i64 ape_stride;
    i64 source_stride;
    i64 out_stride;
    i32 entries;
    i32 columns;
    i32 ratio;
    i32 halves; // 2: slots below ratio read the first half of their rows, the others the second
    i32 rows;
    i32 state_rows;
};
