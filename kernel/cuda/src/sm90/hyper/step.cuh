// From the output of a sublayer to the input of the next one, for few rows: adds the output to four residual streams
// (smxx/hyper/post.cuh, smxx/quant/norm.cuh), multiplies the streams by the matrix of the next sublayer
// (sm90/product/few.cuh), and adds, normalises and quantises the streams (smxx/joint/joint.cuh). The results are
// bitwise equal to those of the separate kernels.
//
// In, out: args.h. hidden is a multiple of 128, 512 to 4096.
// Cluster: eight blocks have up to eight rows. Block r has the columns of warp r of mix_norm, of all streams, and
//          multiplies part r of k. The first eight warps of a block have one row each, and a lane keeps its columns in
//          registers. The streams go to the block of their part of k in the form of an operand; sums of squares and
//          parts of the product go to all blocks. A warpgroup multiplies; 64 weight rows are the rows of its tile, of
//          which 24 exist: the others are the bytes behind them, and their results are not used. Its first warp then
//          computes comb.
// Bytes:   the matrix is read once for each eight rows, 786 KB for hidden = 4096, before the previous kernel has ended.
#pragma once

#include "ptx/cluster.cuh"
#include "sm90/hyper/args.h"
#include "sm90/hyper/summed.cuh"
#include "sm90/tile.cuh"
#include "smxx/hyper/mix.cuh"

namespace sparrow_hyper {

using namespace sparrow_tile;

constexpr int kParts = 8;       // blocks of a cluster, parts of k
constexpr int kRows = 8;        // rows of a cluster
constexpr int kMixes = 24;      // columns of mix: pre, post and comb of four streams
constexpr int kPieces = 2;      // pieces of eight columns of each stream that a lane has
constexpr int kMostBlocks = 32; // blocks of k in a part
constexpr int kTogether = 8;    // blocks of k whose weights share a barrier
constexpr int kStepThreads = 32 * kRows + 128;
constexpr u32 kWeightBytes = kMixes * kBlockBytes, kStreamBytes = kRows * kBlockBytes; // of a block of k

// Shared memory after the operands of all blocks of k.
struct Rest {
    f32 parts[kRows][kParts][kMixes];
    f64 squares[kRows][kParts];     // of all streams
    f64 norms[kRows][2 * kParts];   // sums of squares of the mixed row, in the order of mix_norm
    RowChoices choices[kRows];
    u64 weights_arrived[kMostBlocks / kTogether], streams_arrived, squares_arrived, parts_arrived, norms_arrived;
};

constexpr u32 kOperandBytes = kMostBlocks * (kWeightBytes + kStreamBytes);
constexpr u32 kStepShared = 1024 + kOperandBytes + sizeof(Rest);

struct Places {
    u32 weights, streams;
    Rest* rest;

    DEVICE Places() {
        extern __shared__ u8 dynamic_shared[];
        const u32 start = ptx::shared_address(dynamic_shared);
        weights = (start + 1023) / 1024 * 1024;
        streams = weights + kMostBlocks * kWeightBytes;
        rest = reinterpret_cast<Rest*>(dynamic_shared + (weights - start) + kOperandBytes);
    }
};

// Stores a value in the shared memory of another block of the cluster, at the place of `at` here, and counts its bytes
// on the barrier there.
template <class T> DEVICE void send(const void* at, u32 rank, T v, const u64* barrier) {
    ptx::peer_send(ptx::peer_address(ptx::shared_address(at), rank), v,
                   ptx::peer_address(ptx::shared_address(barrier), rank));
}

DEVICE void await(const u64* barrier) { ptx::barrier_wait(ptx::shared_address(barrier), 0); }

// Initialises the barriers and issues the copies of the weights of this block's part.
DEVICE void begin(const HyperStepArgs& args, const Places& at, i32 rank, i32 rows, i32 blocks) {
    Rest& r = *at.rest;
    for (u64& b : r.weights_arrived) ptx::barrier_init(ptx::shared_address(&b), 1);
    for (u64* b : {&r.streams_arrived, &r.squares_arrived, &r.parts_arrived, &r.norms_arrived}) {
        ptx::barrier_init(ptx::shared_address(b), 1);
    }
    ptx::barrier_init_fence();
    ptx::barrier_expect(ptx::shared_address(&r.streams_arrived), rows * blocks * kBlockBytes);
    ptx::barrier_expect(ptx::shared_address(&r.squares_arrived), rows * sizeof(r.squares[0]));
    ptx::barrier_expect(ptx::shared_address(&r.parts_arrived), rows * sizeof(r.parts[0]));
    ptx::barrier_expect(ptx::shared_address(&r.norms_arrived), rows * sizeof(r.norms[0]));
#pragma unroll 1
    for (i32 b = 0; b < blocks; ++b) {
        const u32 barrier = ptx::shared_address(&r.weights_arrived[b / kTogether]);
        if (b % kTogether == 0) ptx::barrier_expect(barrier, min(kTogether, blocks - b) * kWeightBytes);
        ptx::load_2d(at.weights + b * kWeightBytes, &args.weight_map, barrier,
                     (rank * blocks + b) * Bf16::BlockColumns, 0, ptx::kEvictFirst);
    }
}

// The warpgroup that multiplies: this block's part of k, for all rows.
DEVICE void multiply(const Places& at, i32 rank, i32 rows, i32 blocks) {
    Rest& r = *at.rest;
    await(&r.streams_arrived);
    ptx::fence_async_proxy(); // the streams were written by threads of the cluster
    float d[4];
#pragma unroll 1
    for (i32 b = 0; b < blocks; ++b) {
        if (b % kTogether == 0) await(&r.weights_arrived[b / kTogether]);
        ptx::mma_pin(d);
        ptx::mma_fence();
        multiply_block<Bf16, kRows>(d, ptx::operand_128b(at.weights + b * kWeightBytes),
                                    ptx::operand_128b(at.streams + b * kStreamBytes), b > 0);
        ptx::mma_commit();
    }
    ptx::mma_wait<0>();
    ptx::mma_pin(d);
    const i32 warp = threadIdx.x / 32 % 4, lane = lane_id();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const i32 mix = 16 * warp + lane / 4 + i / 2 * 8, row = lane % 4 * 2 + i % 2;
        if (mix >= kMixes || row >= rows) continue;
#pragma unroll
        for (u32 to = 0; to < kParts; ++to) {
            send(&r.parts[row][rank][mix], to, __float_as_uint(d[i]), &r.parts_arrived);
        }
    }
}

// Returns element `mix` of the product for a row.
DEVICE f32 mix_of(const Rest& r, i32 row, i32 mix) {
    f32 sum = r.parts[row][0][mix];
#pragma unroll
    for (int p = 1; p < kParts; ++p) sum = __fadd_rn(sum, r.parts[row][p][mix]);
    return sum;
}

// Returns the inverse root of the mean square of all streams of a row.
DEVICE f32 inverse_of_streams(const HyperMixArgs& a, const Rest& r, i32 row) {
    f64 sum = 0;
#pragma unroll
    for (int w = 0; w < kParts; ++w) sum = __dadd_rn(sum, r.squares[row][w]);
    RMSNormArgs all{};
    all.columns = kFour * a.hidden;
    all.epsilon = a.norm_epsilon;
    return inverse_root(sum, all);
}

// Computes comb: a lane has a row.
DEVICE void write_comb(const HyperMixArgs& a, const Rest& r, i32 first, i32 rows) {
    await(&r.squares_arrived);
    await(&r.parts_arrived);
    const i32 row = lane_id();
    if (row >= rows) return;
    const f32 inverse = inverse_of_streams(a, r, row);
    f32 m[kFour][kFour];
#pragma unroll
    for (int i = 0; i < kFour * kFour; i++) {
        m[i / kFour][i % kFour] = a.scale[2] * (mix_of(r, row, 2 * kFour + i) * inverse) + a.base[2 * kFour + i];
    }
    comb_four(a, m, a.comb + (first + row) * a.comb_stride);
}

// A warp with one row: lane l has pieces 32 * rank + l and, in the second half of hidden, 256 more.
struct RowWarp {
    const HyperStepArgs& args;
    Rest& rest;
    const u32 streams;
    const i32 rank, slot, lane = lane_id(); // slot: number of the row in the cluster
    const i64 row;
    WeightPiece weight[kPieces];
    uint4 held[kPieces][kFour];

    DEVICE RowWarp(const HyperStepArgs& a, const Places& at, i32 rank_, i32 slot_, i64 row_)
        : args(a), rest(*at.rest), streams(at.streams), rank(rank_), slot(slot_), row(row_) {}

    DEVICE i32 piece(i32 p) const { return 32 * rank + lane + p * 32 * kParts; }
    DEVICE bool inside(i32 p) const { return 8 * piece(p) < args.step.mix.hidden; }

    // Loads what does not depend on the previous kernel.
    DEVICE void load_weights() {
#pragma unroll
        for (int p = 0; p < kPieces; p++) {
            if (inside(p)) weight[p] = load_weight(args.step.norm, piece(p));
        }
    }

    // Adds the sublayer's output to the streams.
    DEVICE void add_output() {
        const HyperPostArgs& a = args.add.post;
        const NormQuantiseArgs& s = args.add.sum;
        u16* x = a.x + row * a.x_stride;
        f32 own = 0; // lanes 0 to 15: comb, lanes 16 to 19: post
        if (lane < kFour * kFour) own = a.comb[row * a.comb_stride + lane];
        if (lane / kFour == kFour) own = a.post[row * a.post_stride + lane % kFour];
        uint4 old[kPieces][kFour], sub[kPieces];
#pragma unroll
        for (int p = 0; p < kPieces; p++) {
#pragma unroll
            for (int i = 0; i < kFour; i++) {
                held[p][i] = old[p][i] = make_uint4(0, 0, 0, 0);
                if (inside(p)) old[p][i] = *reinterpret_cast<const uint4*>(x + i * a.hidden + 8 * piece(p));
            }
            const u16* from = s.results != nullptr ? s.x + row * s.x_stride : a.sub + row * a.sub_stride;
            sub[p] = make_uint4(0, 0, 0, 0);
            if (inside(p)) sub[p] = *reinterpret_cast<const uint4*>(from + 8 * piece(p));
        }
        if (s.results != nullptr) {
            load_warp_choices(s, row, rest.choices[slot]);
            __syncwarp();
#pragma unroll
            for (int p = 0; p < kPieces; p++) {
                if (inside(p)) sub[p] = summed_output<8>(s, rest.choices[slot], sub[p], row, 8 * piece(p));
            }
        }
        f32 post[kFour], comb[kFour][kFour];
#pragma unroll
        for (int k = 0; k < kFour; k++) {
            post[k] = __shfl_sync(ptx::kFullMask, own, kFour * kFour + k);
#pragma unroll
            for (int j = 0; j < kFour; j++) comb[j][k] = __shfl_sync(ptx::kFullMask, own, kFour * j + k);
        }
#pragma unroll
        for (int p = 0; p < kPieces; p++) {
            if (!inside(p)) continue;
            f32 o[8], v[kFour][8];
            unpack_8(sub[p], o);
#pragma unroll
            for (int j = 0; j < kFour; j++) unpack_8(old[p][j], v[j]);
#pragma unroll
            for (int k = 0; k < kFour; k++) {
                f32 sum[8];
#pragma unroll
                for (int e = 0; e < 8; e++) sum[e] = __fmul_rn(post[k], o[e]);
#pragma unroll
                for (int j = 0; j < kFour; j++) {
#pragma unroll
                    for (int e = 0; e < 8; e++) sum[e] = __fmaf_rn(comb[j][k], v[j][e], sum[e]);
                }
                held[p][k] = pack_8(sum);
                *reinterpret_cast<uint4*>(x + k * a.hidden + 8 * piece(p)) = held[p][k];
            }
        }
    }

    // Sends the streams to the blocks that multiply them, and the sum of their squares to all blocks. A stream has two
    // parts of k.
    DEVICE void send_streams(i32 blocks) {
        f64 sum = 0;
#pragma unroll
        for (int p = 0; p < kPieces; p++) {
            const i32 block = piece(p) / 8, half = block >= blocks ? 1 : 0, chunk = piece(p) % 8;
            const u32 operand = streams + (block - half * blocks) * kStreamBytes;
            const u32 to = operand + slot * kBlockBytes + ((chunk ^ slot) << 4);
#pragma unroll
            for (int i = 0; i < kFour; i++) {
                if (inside(p)) {
                    ptx::peer_send(ptx::peer_address(to, 2 * i + half), held[p][i],
                                   ptx::peer_address(ptx::shared_address(&rest.streams_arrived), 2 * i + half));
                }
                sum = __dadd_rn(sum, eight_squares(held[p][i]));
            }
        }
        sum = warp_total(sum);
        if (lane < kParts) {
            send(&rest.squares[slot][rank], lane, static_cast<u64>(__double_as_longlong(sum)), &rest.squares_arrived);
        }
    }

    // Adds the streams, and normalises and quantises the sum.
    DEVICE void mix_and_norm() {
        const HyperMixArgs& a = args.step.mix;
        const NormQuantiseArgs& n = args.step.norm;
        const f32 scale = a.scale[0];
        const f32 base = lane < 2 * kFour ? a.base[lane] : 0.0f;
        await(&rest.squares_arrived);
        await(&rest.parts_arrived);
        const f32 mix = lane < kMixes ? mix_of(rest, slot, lane) : 0.0f;
        const f32 inverse = inverse_of_streams(a, rest, slot);
        const f32 weighs = sigmoid(scale * (mix * inverse) + base) + a.epsilon;
        f32 pre[kFour];
#pragma unroll
        for (int i = 0; i < kFour; i++) pre[i] = __shfl_sync(ptx::kFullMask, weighs, i);
        uint4 mixed[kPieces];
#pragma unroll
        for (int p = 0; p < kPieces; p++) {
            f32 added[8] = {};
#pragma unroll
            for (int i = 0; i < kFour; i++) {
                f32 v[8];
                unpack_8(held[p][i], v);
#pragma unroll
                for (int j = 0; j < 8; j++) added[j] = __fmaf_rn(pre[i], v[j], added[j]);
            }
            mixed[p] = pack_8(added);
            const f64 part = warp_total(__dadd_rn(0.0, eight_squares(mixed[p])));
            if (lane < kParts) {
                send(&rest.norms[slot][p * kParts + rank], lane, static_cast<u64>(__double_as_longlong(part)),
                     &rest.norms_arrived);
            }
        }
        if (rank == 0 && a.kept != nullptr && lane < kMixes) a.kept[row * a.kept_stride + lane] = mix;
        if (rank == 1 && lane / kFour == 1) {
            a.post[row * a.post_stride + lane - kFour] = 2.0f * sigmoid(a.scale[1] * (mix * inverse) + base);
        }
        await(&rest.norms_arrived);
        f64 squares = 0;
#pragma unroll
        for (int w = 0; w < 2 * kParts; w++) squares = __dadd_rn(squares, rest.norms[slot][w]);
        const f32 root = inverse_root(squares, n);
#pragma unroll
        for (int p = 0; p < kPieces; p++) {
            const i32 column = 8 * piece(p);
            if (column - 8 * lane >= a.hidden) break; // uniform in a warp, because 16 lanes compute a scale together
            f32 v[8] = {};
            if (column < a.hidden) {
                f32 w[8];
                unpack_piece(mixed[p], v);
                unpack_weight(weight[p], n.weight_bf16, w);
#pragma unroll
                for (int j = 0; j < 8; j++) v[j] = __fmul_rn(__fmul_rn(v[j], root), w[j]);
                const uint4 packed = pack_piece(v);
                *reinterpret_cast<uint4*>(n.out + row * n.out_stride + column) = packed;
                unpack_piece(packed, v);
            }
            if (n.codes != nullptr) {
                f32 scaled;
                const uint2 w = quantise_piece(v, n.exact, scaled);
                if (column < a.hidden) {
                    store_piece(n.codes + row * n.code_stride, n.scales, n.scale_stride, row, column, w, scaled);
                }
            }
        }
    }
};

DEVICE void step(const HyperStepArgs& args) {
    const Places at;
    const i32 rank = blockIdx.x % kParts, first = blockIdx.x / kParts * kRows;
    const i32 rows = min(kRows, args.step.mix.rows - first), blocks = args.step.mix.hidden / 128;
    const i32 warp = __shfl_sync(ptx::kFullMask, threadIdx.x / 32, 0);
    if (warp >= kRows) {
        if (warp == kRows && lane_id() == 0) begin(args, at, rank, rows, blocks);
        __syncwarp();
        ptx::cluster_arrive();
        ptx::cluster_wait();
        multiply(at, rank, rows, blocks);
        if (rank == kParts - 1 && warp == kRows) write_comb(args.step.mix, *at.rest, first, rows);
        return;
    }
    RowWarp row(args, at, rank, warp, first + warp);
    ptx::cluster_arrive();
    const bool exists = warp < rows;
    if (exists) row.load_weights();
    begin_after_previous();
    if (exists) row.add_output();
    ptx::cluster_wait();
    if (exists) {
        row.send_streams(blocks);
        row.mix_and_norm();
    }
}

} // namespace sparrow_hyper
