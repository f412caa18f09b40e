// What lies between two layers in one kernel: the residual sum, its RMSNorm and the norm quantised for a product.
//
// In, out  args.h. Each step rounds to bf16 as a kernel of its own would: the sum x + delta, and the norm as rms_norm computes it (float64 inside).
// Block    one row, kept in shared memory between its two passes. The sum of squares is taken in an order that depends on the columns alone.
// Traffic  x, delta and the weight read once; sum, norm, codes and scales written once.
#pragma once
#include "smxx/quant/quantise.cuh"

constexpr i32 kNormThreads = 512;
constexpr i32 kNormColumns = 16384;

DEVICE uint4 pack_piece(const f32 v[kPieceColumns]) {
    return make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
}

// The sum over the block's threads; every thread gets it. Warps are added in order.
DEVICE f64 block_sum(f64 v, f64* partial) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) v = __dadd_rn(v, __shfl_xor_sync(ptx::kFullMask, v, d));
    if (lane_id() == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    f64 sum = 0;
#pragma unroll
    for (int w = 0; w < kNormThreads / 32; w++) sum = __dadd_rn(sum, partial[w]);
    return sum;
}

DEVICE void norm_quantise_body(const NormQuantiseArgs& a) {
    __shared__ uint4 kept[kNormColumns / kPieceColumns]; // the row's sums
    __shared__ f64 partial[kNormThreads / 32];
    begin_after_previous();
    const i64 row = blockIdx.x;
    const i32 pieces = a.columns / kPieceColumns;
    f64 squares = 0;
    for (i32 i = threadIdx.x; i < pieces; i += kNormThreads) {
        const i32 column = i * kPieceColumns;
        uint4 w = *reinterpret_cast<const uint4*>(a.x + row * a.x_stride + column);
        f32 v[kPieceColumns];
        unpack_piece(w, v);
        if (a.delta != nullptr) {
            f32 d[kPieceColumns];
            unpack_piece(*reinterpret_cast<const uint4*>(a.delta + row * a.delta_stride + column), d);
#pragma unroll
            for (int j = 0; j < kPieceColumns; j++) v[j] = __fadd_rn(v[j], d[j]);
            w = pack_piece(v);
            unpack_piece(w, v);
        }
        if (a.sum != nullptr) *reinterpret_cast<uint4*>(a.sum + row * a.sum_stride + column) = w;
        kept[i] = w;
#pragma unroll
        for (int j = 0; j < kPieceColumns; j++) squares = __dadd_rn(squares, __dmul_rn(v[j], v[j]));
    }
    const f64 inverse = rsqrt(__dadd_rn(block_sum(squares, partial) / a.columns, a.epsilon));
    // All threads of a warp stay together: a scale is found by 16 lanes.
    for (i32 i = threadIdx.x; i - lane_id() < pieces; i += kNormThreads) {
        const i32 column = i * kPieceColumns;
        f32 v[kPieceColumns] = {};
        if (i < pieces) {
            unpack_piece(kept[i], v);
            f32 weight[kPieceColumns];
            if (a.weight_bf16) {
                unpack_piece(*reinterpret_cast<const uint4*>(static_cast<const u16*>(a.weight) + column), weight);
            } else {
                const float4* from = reinterpret_cast<const float4*>(static_cast<const f32*>(a.weight) + column);
                const float4 low = from[0], high = from[1];
                const f32 all[kPieceColumns] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
                for (int j = 0; j < kPieceColumns; j++) weight[j] = all[j];
            }
#pragma unroll
            for (int j = 0; j < kPieceColumns; j++) v[j] = __double2float_rn(__dmul_rn(__dmul_rn(v[j], inverse), weight[j]));
            const uint4 w = pack_piece(v);
            if (a.out != nullptr) *reinterpret_cast<uint4*>(a.out + row * a.out_stride + column) = w;
            unpack_piece(w, v);
        }
        if (a.codes != nullptr) {
            f32 scale;
            const uint2 w = quantise_piece(v, a.exact, scale);
            if (i < pieces) store_piece(a.codes + row * a.code_stride, a.scales, a.scale_stride, row, column, w, scale);
        }
    }
}
