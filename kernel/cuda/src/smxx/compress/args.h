// Arguments of the kernel that compresses groups of tokens into cache entries (v4 spec, 2.4).
#pragma once
#include "smxx/base.h"

struct CompressArgs {
    const f32* values;  // [rows, halves * columns] values of the rows of this pass, before compression
    const f32* gates;   // [rows, halves * columns] gates of the rows of this pass
    const f32* state;   // [state_rows, 2 * halves * columns] rows of earlier passes, values before gates
    const f32* ape;     // [ratio, halves * columns] positional embedding that is added to gates
    const i32* sources; // [entries, halves * ratio]: s >= 0: row s; -1: no source; s < -1: state row -2-s
    u16* out;           // bf16 [entries, columns]
    u32* faults;        // one word of fault bits, or null
    i64 value_stride;   // elements between rows of values; the following strides are also in elements
    i64 gate_stride;
    i64 state_stride;
    i64 ape_stride;
    i64 source_stride;
    i64 out_stride;
    i32 entries;
    i32 columns;
    i32 ratio;
    i32 halves; // 1 or 2; with 2, slots below ratio use the first half of their rows, the other slots the second half
    i32 rows;
    i32 state_rows;
};
