// RMSNorm without weights over every head, in place: x = x / sqrt(mean(x^2) + epsilon).
//
// In, out: bf16 [rows, heads * columns]. Sums have the order of smxx/rows/norm.cuh.
// Block:   8 warps, one head per warp.
// Bytes:   a head is read twice, the second time from cache, and written once.
#pragma once
#include "smxx/hyper/args.h"
#include "smxx/rows/norm.cuh"

DEVICE void head_norm_body(const HeadNormArgs& a) {
    begin_after_previous();
    const i64 head = warp_row(), row = head / a.heads;
    if (row >= a.rows) return;
    u16* x = a.x + row * a.x_stride + (head - row * a.heads) * a.columns;
    const bool vectors = a.columns % 8 == 0 && aligned_16(a.x, 2 * a.x_stride);
    RMSNormArgs one{};
    one.columns = a.columns;
    one.epsilon = a.epsilon;
    const f32 inverse = inverse_root(warp_total(squares<32>(one, x, lane_id(), vectors)), one);
    if (!vectors) {
        __syncwarp(); // all lanes have read their values
        for (i32 i = lane_id(); i < a.columns; i += 32) {
            x[i] = static_cast<u16>(bf16_bits(__fmul_rn(bf16_low(x[i]), inverse)));
        }
        return;
    }
    for (i32 i = 8 * lane_id(); i < a.columns; i += 8 * 32) {
        f32 v[8];
        uint4* at = reinterpret_cast<uint4*>(x + i);
        unpack_8(*at, v);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __fmul_rn(v[j], inverse);
        *at = pack_8(v);
    }
}
