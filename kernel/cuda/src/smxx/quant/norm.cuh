// What lies between two layers in one kernel: the residual sum, its RMSNorm and the norm quantised for a product.
//
// In, out  args.h. Each step rounds to bf16 as a kernel of its own would: the sum x + delta, and the norm as rms_norm
//          computes it (float64 inside).
// Block    one row, kept in registers: everything is asked for at once, so that one latency is seen. The sum of squares
//          is taken in an order that depends on the columns alone.
// Traffic  x, delta and the weight read once; sum, norm, codes and scales written once.
// H200     4096 rows of 7168: 93 us, 52 % of 4.3 TB/s; 64 rows 5.6 us.
#pragma once
#include "smxx/quant/quantise.cuh"

constexpr i32 kNormThreads = 512;
constexpr i32 kNormColumns = kNormThreads * kPieceColumns; // of one piece for each thread

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

// Eight weights as they lie in memory: 16 bytes of bf16 or 32 of f32.
struct WeightPiece {
    uint4 low, high;
};

DEVICE WeightPiece load_weight(const NormQuantiseArgs& a, i32 piece) {
    const uint4* from = static_cast<const uint4*>(a.weight);
    if (a.weight_bf16) return {from[piece], make_uint4(0, 0, 0, 0)};
    return {from[2 * piece], from[2 * piece + 1]};
}

DEVICE void unpack_weight(const WeightPiece& w, bool bf16, f32 v[kPieceColumns]) {
    if (bf16) {
        unpack_piece(w.low, v);
        return;
    }
    const u32 words[kPieceColumns] = {w.low.x, w.low.y, w.low.z, w.low.w, w.high.x, w.high.y, w.high.z, w.high.w};
#pragma unroll
    for (int i = 0; i < kPieceColumns; i++) v[i] = __uint_as_float(words[i]);
}

// A thread has Pieces pieces: rows of at most Pieces * kNormColumns columns.
template <int Pieces> DEVICE void norm_quantise_body(const NormQuantiseArgs& a) {
    __shared__ f64 partial[kNormThreads / 32];
    const i64 row = blockIdx.x;
    const i32 pieces = a.columns / kPieceColumns, mine = threadIdx.x;
    WeightPiece weight[Pieces]; // does not depend on the kernel before
#pragma unroll
    for (int r = 0; r < Pieces; r++) {
        if (mine + r * kNormThreads < pieces) weight[r] = load_weight(a, mine + r * kNormThreads);
    }
    begin_after_previous();
    uint4 kept[Pieces], delta[Pieces];
#pragma unroll
    for (int r = 0; r < Pieces; r++) {
        const i32 i = mine + r * kNormThreads;
        if (i < pieces) {
            kept[r] = *reinterpret_cast<const uint4*>(a.x + row * a.x_stride + i * kPieceColumns);
            if (a.delta != nullptr) {
                delta[r] = *reinterpret_cast<const uint4*>(a.delta + row * a.delta_stride + i * kPieceColumns);
            }
        }
    }
    f64 squares = 0;
#pragma unroll
    for (int r = 0; r < Pieces; r++) {
        const i32 i = mine + r * kNormThreads;
        if (i < pieces) {
            f32 v[kPieceColumns];
            unpack_piece(kept[r], v);
            if (a.delta != nullptr) {
                f32 d[kPieceColumns];
                unpack_piece(delta[r], d);
#pragma unroll
                for (int j = 0; j < kPieceColumns; j++) v[j] = __fadd_rn(v[j], d[j]);
                kept[r] = pack_piece(v);
                unpack_piece(kept[r], v);
            }
            if (a.sum != nullptr) *reinterpret_cast<uint4*>(a.sum + row * a.sum_stride + i * kPieceColumns) = kept[r];
#pragma unroll
            for (int j = 0; j < kPieceColumns; j++) squares = __dadd_rn(squares, __dmul_rn(v[j], v[j]));
        }
    }
    const f64 inverse = rsqrt(__dadd_rn(block_sum(squares, partial) / a.columns, a.epsilon));
#pragma unroll
    for (int r = 0; r < Pieces; r++) {
        const i32 i = mine + r * kNormThreads, column = i * kPieceColumns;
        if (i - lane_id() >= pieces) break; // all lanes of a warp or none: a scale is found by 16 of them
        f32 v[kPieceColumns] = {};
        if (i < pieces) {
            f32 w[kPieceColumns];
            unpack_piece(kept[r], v);
            unpack_weight(weight[r], a.weight_bf16, w);
#pragma unroll
            for (int j = 0; j < kPieceColumns; j++) v[j] = __double2float_rn(__dmul_rn(__dmul_rn(v[j], inverse), w[j]));
            const uint4 packed = pack_piece(v);
            if (a.out != nullptr) *reinterpret_cast<uint4*>(a.out + row * a.out_stride + column) = packed;
            unpack_piece(packed, v);
        }
        if (a.codes != nullptr) {
            f32 scale;
            const uint2 w = quantise_piece(v, a.exact, scale);
            if (i < pieces) store_piece(a.codes + row * a.code_stride, a.scales, a.scale_stride, row, column, w, scale);
        }
    }
}
