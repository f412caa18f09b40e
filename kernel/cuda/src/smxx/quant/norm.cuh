// The operations between two layers in one kernel: the residual sums, their RMSNorm, and quantisation of the norm for
// a matrix product.
//
// In, out: args.h. Each step rounds to bf16 as a separate kernel would: x + delta, then plus the weighted sum of the
//          experts' results in the order of the choice (float32), and the norm with the arithmetic of rms_norm.
// Block:   one row, kept in registers. All loads are issued at once, so only one memory latency is exposed. The order
//          of the sum of squares depends only on the number of columns.
// Bytes:   x, delta, results and the weight are read once; sum, norm, codes and scales are written once.
#pragma once
#include "smxx/quant/quantise.cuh"
#include "smxx/rows/norm.cuh"

constexpr i32 kNormThreads = 512;

DEVICE uint4 pack_piece(const f32 v[kPieceColumns]) {
    return make_uint4(pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
}

// Returns the sum over the threads of the block, in every thread. Warps are added in order, so that threads without
// columns at the end of a block do not change the bits.
template <int Threads> DEVICE f64 block_sum(f64 v, f64* partial) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) v = __dadd_rn(v, __shfl_xor_sync(ptx::kFullMask, v, d));
    if (lane_id() == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    f64 sum = 0;
#pragma unroll
    for (int w = 0; w < Threads / 32; w++) sum = __dadd_rn(sum, partial[w]);
    return sum;
}

// Eight weights as stored in memory: 16 bytes of bf16 or 32 bytes of f32.
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

constexpr i32 kMostChoices = 32; // maximum choices per row

// The experts of a row in shared memory: the position of each expert result, and its weight.
struct RowChoices {
    i32 place[kMostChoices];
    f32 share[kMostChoices];
    i32 count;
};

// Loads the choices of a row, by one warp.
DEVICE void load_warp_choices(const NormQuantiseArgs& a, i64 row, RowChoices& c) {
    const i32 lane = lane_id();
    const i32 id = lane < a.top ? a.ids[row * a.id_stride + lane] : -1;
    const u32 valid = __ballot_sync(ptx::kFullMask, id >= 0 && id < a.experts);
    if (valid >> lane & 1) {
        const i32 at = __popc(valid & ((1u << lane) - 1));
        c.place[at] = lane;
        c.share[at] = a.shares[row * a.share_stride + lane];
    }
    if (lane == 0) c.count = __popc(valid);
}

DEVICE void load_choices(const NormQuantiseArgs& a, i64 row, RowChoices& c) {
    if (threadIdx.x < 32) load_warp_choices(a, row, c);
    __syncthreads();
}

// Adds the weighted sum of the experts' results in eight columns to v, in the order of the choice. `Together` results
// are loaded at a time.
template <int Together>
DEVICE void add_results(const NormQuantiseArgs& a, i64 row, i32 column, const RowChoices& c, f32 v[kPieceColumns]) {
    f32 sum[kPieceColumns] = {};
    const u16* results = a.results + row * a.top * a.columns + column;
    for (i32 from = 0; from < c.count; from += Together) {
        uint4 piece[Together];
#pragma unroll
        for (int j = 0; j < Together; j++) {
            if (from + j < c.count) {
                piece[j] = *reinterpret_cast<const uint4*>(results + static_cast<i64>(c.place[from + j]) * a.columns);
            }
        }
#pragma unroll
        for (int j = 0; j < Together; j++) {
            if (from + j >= c.count) break;
            f32 r[kPieceColumns];
            unpack_piece(piece[j], r);
#pragma unroll
            for (int i = 0; i < kPieceColumns; i++) sum[i] = __fmaf_rn(c.share[from + j], r[i], sum[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < kPieceColumns; i++) v[i] = __fadd_rn(v[i], sum[i]);
}

// Adds, normalises and quantises one row. A thread has `Pieces` pieces of eight columns. Pieces and Threads depend only
// on the number of columns, so the bits of a row do not depend on other rows. Experts: there are expert results to add.
template <int Pieces, bool Experts, int Threads = kNormThreads>
DEVICE void norm_quantise_body(const NormQuantiseArgs& a, i64 row) {
    __shared__ f64 partial[Threads / 32];
    __shared__ RowChoices choices;
    const i32 pieces = a.columns / kPieceColumns, mine = threadIdx.x;
    WeightPiece weight[Pieces]; // does not depend on the previous kernel
#pragma unroll
    for (int r = 0; r < Pieces; r++) {
        const i32 i = mine + r * Threads;
        if (a.weight != nullptr && i < pieces) weight[r] = load_weight(a, i);
    }
    begin_after_previous();
    uint4 kept[Pieces], delta[Pieces];
#pragma unroll
    for (int r = 0; r < Pieces; r++) {
        const i32 i = mine + r * Threads;
        if (i < pieces) {
            kept[r] = *reinterpret_cast<const uint4*>(a.x + row * a.x_stride + i * kPieceColumns);
            if (a.delta != nullptr) {
                delta[r] = *reinterpret_cast<const uint4*>(a.delta + row * a.delta_stride + i * kPieceColumns);
            }
        }
    }
    if (Experts) load_choices(a, row, choices);
    f64 squares = 0;
#pragma unroll
    for (int r = 0; r < Pieces; r++) {
        const i32 i = mine + r * Threads;
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
            if (Experts) {
                add_results<Pieces <= 2 ? 8 : 4>(a, row, i * kPieceColumns, choices, v);
                kept[r] = pack_piece(v);
                unpack_piece(kept[r], v);
            }
            if (a.sum != nullptr) *reinterpret_cast<uint4*>(a.sum + row * a.sum_stride + i * kPieceColumns) = kept[r];
            squares = __dadd_rn(squares, eight_squares(kept[r]));
        }
    }
    if (a.weight == nullptr) return;
    const f32 inverse = inverse_root(block_sum<Threads>(squares, partial), a);
#pragma unroll
    for (int r = 0; r < Pieces; r++) {
        const i32 i = mine + r * Threads, column = i * kPieceColumns;
        if (i - lane_id() >= pieces) break; // uniform in a warp, because 16 lanes compute a scale together
        f32 v[kPieceColumns] = {};
        if (i < pieces) {
            f32 w[kPieceColumns];
            unpack_piece(kept[r], v);
            unpack_weight(weight[r], a.weight_bf16, w);
#pragma unroll
            for (int j = 0; j < kPieceColumns; j++) v[j] = __fmul_rn(__fmul_rn(v[j], inverse), w[j]);
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
