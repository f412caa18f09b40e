// RMSNorm of every row: out = x / sqrt(mean(x^2) + epsilon) * weight.
//
// In, out  bf16 [rows, columns], any number of columns; the sum of squares and the quotient are float64, rounded once to bf16 through float32.
// Block    8 warps, one row each; a row's bits depend on its columns alone. Traffic: x is read twice, the second time from cache.
#pragma once
#include "smxx/num.cuh"
#include "smxx/rows/args.h"

DEVICE void rms_norm_body(const RMSNormArgs& a) {
    begin_after_previous();
    i64 row = warp_row();
    if (row >= a.rows) return;
    const u16* x = a.x + row * a.x_stride;
    u16* out = a.out + row * a.out_stride;
    f64 sum = 0;
    for (i32 i = lane_id(); i < a.columns; i += 32) {
        f64 v = bf16_low(x[i]);
        sum = __dadd_rn(sum, __dmul_rn(v, v));
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum = __dadd_rn(sum, __shfl_xor_sync(ptx::kFullMask, sum, d));
    f64 inverse = rsqrt(__dadd_rn(sum / a.columns, a.epsilon));
    for (i32 i = lane_id(); i < a.columns; i += 32) {
        f64 weight = a.weight_bf16 ? bf16_low(static_cast<const u16*>(a.weight)[i]) : static_cast<const f32*>(a.weight)[i];
        out[i] = static_cast<u16>(bf16_bits(__double2float_rn(__dmul_rn(__dmul_rn(bf16_low(x[i]), inverse), weight))));
    }
}
