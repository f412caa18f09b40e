// Order of logits by preference: the larger logit first; among equal logits, the lower column first.
#pragma once
#include "smxx/base.h"

// Returns an integer with the order of the logit; -0 counts as 0, and NaN as minus infinity.
DEVICE u32 candidate_order(f32 v) {
    u32 b = __float_as_uint(v != v ? __int_as_float(0xFF800000) : v + 0.0f);
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}

// Returns a key with the order of (logit, column), where the lower column is larger. It is never 0.
DEVICE u64 candidate_key(f32 v, i32 column) {
    return static_cast<u64>(candidate_order(v)) << 32 | static_cast<u32>(~column);
}
