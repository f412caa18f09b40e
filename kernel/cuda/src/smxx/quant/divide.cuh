// Division by a scale in the quantisation to e4m3. A division by __fdiv_rn needs a reciprocal and a check of its range
// for each value.
#pragma once
#include "smxx/num.cuh"

// Returns v / scale, correctly rounded, for the scale of 128 finite values that include v (index_scale), and for its
// rounded reciprocal. The first correction leaves an error of at most one unit in the last place; the remainder of the
// second is exact, so that its correction rounds correctly (Markstein). Only quotients far below the smallest code may
// have other bits; their sign is kept, also that of zero.
DEVICE f32 over_scale(f32 v, f32 scale, f32 reciprocal) {
    f32 q = __fmul_rn(v, reciprocal);
    q = __fmaf_rn(__fmaf_rn(-scale, q, v), reciprocal, q);
    q = __fmaf_rn(__fmaf_rn(-scale, q, v), reciprocal, q);
    return __uint_as_float((__float_as_uint(q) & kAbsMask) | (__float_as_uint(v) & ~kAbsMask));
}
