// Logits in the order of preference: the larger first, of equal ones the lower column.
#pragma once
#include "smxx/base.h"

// The logit in the order of integers, -0 as 0 and NaN as minus infinity.
DEVICE u32 candidate_order(f32 v) {
    u32 b = __float_as_uint(v != v ? __int_as_float(0xFF800000) : v + 0.0f);
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}

// The order, then the column, lower first: never 0.
DEVICE u64 candidate_key(f32 v, i32 column) {
    return static_cast<u64>(candidate_order(v)) << 32 | static_cast<u32>(~column);
}
