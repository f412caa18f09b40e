// Arguments of the V4 cache kernels.
#pragma once
#include "smxx/views.h"

struct WriteV4Args {
    PoolView pool; // pages of page_tokens data rows of 576 bytes, then page_tokens scale rows of 8 bytes
    RotaryView rotary;
    const u16* rows;      // bf16 [tokens, 512]; this kernel rotates the last 64 values, pairs (2i, 2i+1)
    const i32* positions; // [tokens]: a token's own position, or the first position of a compressed entry's group
    const i32* slots;     // [tokens]; negative: do not write
    u32* faults;          // one word of fault bits, or null
    const void* norm;     // f32 or bf16 [512] weights of the RMSNorm of rows; null: rows are already normalised
    f64 epsilon;          // number that the RMSNorm adds to the mean of squares
    i64 row_stride;       // elements between tokens, multiple of 8
    i32 tokens;
    i32 norm_bf16; // 1: norm is bf16
};

struct CombineV4Args {
    const i32* window;        // [tokens, window_stride] rows of the window part
    const i32* window_length; // [tokens]
    const i32* extra;         // [tokens, extra_stride] rows of the compressed part; null when extra_width is 0
    const i32* extra_length;  // [tokens]; null when extra_width is 0
    const i32* window_base;   // [tokens] number that is added to the window's rows; null: 0
    const i32* extra_base;    // [tokens] number that is added to the compressed part's rows; null: window_rows
    i32* rows;                // [tokens, width] rows of the concatenation; -1: no row
    i32* lengths;             // [tokens]
    i64 window_stride;
    i64 extra_stride;
    i32 tokens;
    i32 window_width; // entries of a window row
    i32 extra_width;  // entries of an extra row
    i32 width;        // entries of a row list, at least window_width + extra_width
    i32 window_rows;  // rows of the window part of the concatenated keys: the shift of the extra part
    i32 reserved;
};
