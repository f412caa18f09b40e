// Joins the window selection and the compressed selection of every token into one list of rows over the concatenated
// keys.
//
// In:    window [tokens, window_width] and extra [tokens, extra_width] row numbers with lengths. Lengths are clamped
//        to the width.
// Out:   rows [tokens, width]: the entries of window, then those of extra, each plus its base, then -1. A negative
//        entry becomes -1, so "no row" can never become a valid row.
// Block: 8 warps, one token per warp.
// Bytes: each entry is read once, and width entries are written. 4096 tokens of 128 + 512 entries take 8.2 us on an
//        H200, 60 % of the copy bandwidth.
#pragma once
#include "smxx/base.h"
#include "smxx/v4/args.h"

constexpr int kAtOnce = 5;

DEVICE void combine_v4_body(const CombineV4Args& a) {
    begin_after_previous();
    i64 token = warp_row();
    if (token >= a.tokens) return;
    i32 windows = min(max(a.window_length[token], 0), a.window_width);
    i32 extras = a.extra_width > 0 ? min(max(a.extra_length[token], 0), a.extra_width) : 0;
    const i32* window = a.window + token * a.window_stride;
    const i32* extra = a.extra + token * a.extra_stride;
    i32 window_base = a.window_base != nullptr ? a.window_base[token] : 0;
    i32 extra_base = a.extra_base != nullptr ? a.extra_base[token] : a.window_rows;
    i32* out = a.rows + token * a.width;
    for (i32 base = lane_id(); base < a.width; base += 32 * kAtOnce) {
        i32 row[kAtOnce]; // kAtOnce loads are in flight together
#pragma unroll
        for (int u = 0; u < kAtOnce; u++) {
            i32 i = base + 32 * u;
            const i32* from = i < windows ? window + i : extra + (i - windows);
            row[u] = i < windows + extras ? *from : -1;
        }
#pragma unroll
        for (int u = 0; u < kAtOnce; u++) {
            i32 i = base + 32 * u;
            if (i < a.width) out[i] = row[u] < 0 ? -1 : row[u] + (i < windows ? window_base : extra_base);
        }
    }
    if (lane_id() == 0) a.lengths[token] = windows + extras;
}
