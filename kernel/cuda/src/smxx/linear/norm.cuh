// Norms and means of rows for linear attention and for pooled index keys.
//
// Gated norm: a warp computes up to four heads of rows, of which it requests all values first; four of the 128 columns
//             per lane: x / sqrt(mean(x^2) + epsilon) * weight * sigmoid(gate).
// Layer norm: one warp per row: (x - mean) / sqrt(variance + epsilon) * weight + bias.
// Mean:       one thread per column: the mean of the residual streams.
#pragma once
#include "smxx/linear/sequences.cuh"
#include "smxx/rows/norm.cuh"

DEVICE bool aligned_8(const void* p) { return (reinterpret_cast<u64>(p) & 7) == 0; }

DEVICE f32 gated_value(f32 x, f32 inverse, f32 weight, f32 gate) {
    return __fmul_rn(__fmul_rn(__fmul_rn(x, inverse), weight), fast_sigmoid(gate));
}

// A head of a row, or a distance between two of them.
struct HeadAt {
    i32 row, head;
};
DEVICE HeadAt head_at(const GatedNormArgs& a, i64 each) {
    // A division of 64 bits takes as long as the rest of the kernel.
    const bool small = each <= 0xFFFFFFFFu;
    const i64 row = small ? static_cast<u32>(each) / static_cast<u32>(a.heads) : each / a.heads;
    return HeadAt{static_cast<i32>(row), static_cast<i32>(each - row * a.heads)};
}

// Returns the head at a distance after a head.
DEVICE HeadAt after(const GatedNormArgs& a, HeadAt h, HeadAt distance) {
    const i32 head = h.head + distance.head;
    const bool next = head >= a.heads;
    return HeadAt{h.row + distance.row + next, next ? head - a.heads : head};
}

// Computes the heads of 128 columns that begin with h and have a distance from each other.
DEVICE void gated_norm_128(const GatedNormArgs& a, HeadAt h, HeadAt distance) {
    constexpr int kTogether = 4; // heads that are loaded together, to overlap their latency
    const i32 c = 4 * lane_id();
    const float4 w = *reinterpret_cast<const float4*>(a.weight + c);
    while (h.row < a.rows) {
        uint2 x[kTogether], gate[kTogether];
        i64 to[kTogether]; // index of the lane's first output, -1: there is no such head
#pragma unroll
        for (int i = 0; i < kTogether; i++) {
            const i32 column = 128 * h.head + c;
            to[i] = h.row < a.rows ? h.row * a.out_stride + column : -1;
            if (to[i] >= 0) {
                x[i] = *reinterpret_cast<const uint2*>(a.x + h.row * a.x_stride + column);
                gate[i] = *reinterpret_cast<const uint2*>(a.gate + h.row * a.gate_stride + column);
            }
            h = after(a, h, distance);
        }
#pragma unroll
        for (int i = 0; i < kTogether; i++) {
            if (to[i] < 0) return; // the last head was before
            const float4 v = widen_bf16x4(x[i]), g = widen_bf16x4(gate[i]);
            f32 squares = __fmaf_rn(v.w, v.w, __fmaf_rn(v.z, v.z, __fmaf_rn(v.y, v.y, __fmul_rn(v.x, v.x))));
#pragma unroll
            for (int d = 16; d > 0; d /= 2) squares = __fadd_rn(squares, __shfl_xor_sync(ptx::kFullMask, squares, d));
            const f32 inverse = inverse_root_of(__fmaf_rn(squares, 1.0f / 128, static_cast<f32>(a.epsilon)));
            store_bf16x4(a.out + to[i],
                         make_float4(gated_value(v.x, inverse, w.x, g.x), gated_value(v.y, inverse, w.y, g.y),
                                     gated_value(v.z, inverse, w.z, g.z), gated_value(v.w, inverse, w.w, g.w)));
        }
    }
}

// Computes a head of any number of columns.
DEVICE void gated_norm_any(const GatedNormArgs& a, HeadAt h) {
    const i64 column = static_cast<i64>(h.head) * a.columns;
    const u16* x = a.x + h.row * a.x_stride + column;
    const u16* gate = a.gate + h.row * a.gate_stride + column;
    u16* out = a.out + h.row * a.out_stride + column;
    f32 sum = 0;
    for (i32 c = lane_id(); c < a.columns; c += 32) {
        const f32 v = bf16_low(x[c]);
        sum = __fmaf_rn(v, v, sum);
    }
    const f32 inverse = inverse_root(warp_total(sum), a);
    for (i32 c = lane_id(); c < a.columns; c += 32)
        out[c] = static_cast<u16>(bf16_bits(gated_value(bf16_low(x[c]), inverse, a.weight[c], bf16_low(gate[c]))));
}

DEVICE void gated_norm_body(const GatedNormArgs& a) {
    begin_after_previous();
    const HeadAt distance = head_at(a, static_cast<i64>(gridDim.x) * kWarpsPerBlock);
    HeadAt h = head_at(a, warp_row());
    if (a.columns == 128 && ((a.x_stride | a.gate_stride | a.out_stride) & 3) == 0 && aligned_8(a.x) &&
        aligned_8(a.gate) && aligned_8(a.out) && aligned_16(a.weight, 0)) {
        gated_norm_128(a, h, distance);
        return;
    }
    for (; h.row < a.rows; h = after(a, h, distance)) gated_norm_any(a, h);
}

DEVICE void layer_norm_body(const LayerNormArgs& a) {
    begin_after_previous();
    const i64 row = warp_row();
    if (row >= a.rows) return;
    const i64 from = row * a.x_stride, to = row * a.out_stride;
    f64 sum = 0;
    for (i32 c = lane_id(); c < a.columns; c += 32) sum = __dadd_rn(sum, read_float(a.x, from + c, a.x_type));
    const f64 mean = __ddiv_rn(warp_total(sum), a.columns);
    f64 squares = 0;
    for (i32 c = lane_id(); c < a.columns; c += 32) {
        const f64 d = __dsub_rn(read_float(a.x, from + c, a.x_type), mean);
        squares = __fma_rn(d, d, squares);
    }
    const f32 inverse = inverse_root(warp_total(squares), a);
    for (i32 c = lane_id(); c < a.columns; c += 32) {
        const f32 v = __fmul_rn(__double2float_rn(__dsub_rn(read_float(a.x, from + c, a.x_type), mean)), inverse);
        write_float(a.out, to + c, a.out_type, __fmaf_rn(v, a.weight[c], a.bias[c]));
    }
}

DEVICE void mean_streams_body(const MeanStreamsArgs& a) {
    begin_after_previous();
    const i64 row = blockIdx.x;
    for (i32 c = blockIdx.y * kThreads + threadIdx.x; c < a.hidden; c += gridDim.y * kThreads) {
        f32 sum = 0;
        for (i32 i = 0; i < a.streams; i++)
            sum = __fadd_rn(sum, bf16_low(a.x[row * a.x_stride + static_cast<i64>(i) * a.hidden + c]));
        a.out[row * a.out_stride + c] = static_cast<u16>(bf16_bits(__fdiv_rn(sum, static_cast<f32>(a.streams))));
    }
}
