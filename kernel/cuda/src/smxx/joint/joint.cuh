// Fused kernels: small consecutive operations in one launch. Results are bitwise equal to those of the separate
// kernels.
//
// Put:      copies rows to given positions of up to four tensors (smxx/pick/pick.cuh).
// Turned:   normalises and rotates heads (smxx/hyper/head_norm.cuh, smxx/rope/rope.cuh); one head per warp.
// Quantise: rotates heads in place and quantises them (smxx/quant/quantise.cuh).
// Sum:      adds the results of experts (smxx/quant/norm.cuh) and adds the sum to the residual streams
//           (smxx/hyper/post.cuh). A block has 2048 columns of a row, eight adjacent columns per thread.
// Mix:      adds the residual streams (smxx/hyper/mix.cuh), then normalises and quantises the sum
//           (smxx/quant/norm.cuh). A block has one row, whose sum stays in registers. The weights for adding the
//           sublayer's output back are a chain of 40 divisions; a ninth warp computes them at the same time.
// Parts:    the independent operations of a layer between two matrix products; each block does one of them.
#pragma once
#include "ptx/team.cuh"
#include "smxx/compress/compress.cuh"
#include "smxx/hyper/head_norm.cuh"
#include "smxx/hyper/post.cuh"
#include "smxx/indexer/prepare.cuh"
#include "smxx/joint/args.h"
#include "smxx/pick/pick.cuh"
#include "smxx/quant/norm.cuh"
#include "smxx/rope/rope.cuh"
#include "smxx/v4/entry.cuh"

// Copies one row of tensor number `which`.
DEVICE void put_four_body(const PutFourArgs& a, i32 row, i32 which) {
    const PutArgs& one = which == 0 ? a.first : which == 1 ? a.second : which == 2 ? a.third : a.fourth;
    if (row < one.rows) put_body(one, row);
}

// Rotates the pairs in eight adjacent columns of a row, starting at column c of a head, and rounds them to bf16.
// Columns outside the rotated range are unchanged.
DEVICE uint4 turn_8(const RotateArgs& a, uint4 piece, i64 row, i32 c) {
    const i32 from = c - a.offset;
    if (from < 0 || from >= a.rope) return piece;
    const f32* angles = a.angles + row * a.angle_stride + from / 2;
    f32 v[8];
    unpack_8(piece, v);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const f32 sine = angles[a.rope / 2 + i];
        rotate(v[2 * i], v[2 * i + 1], angles[i], a.inverse ? -sine : sine);
    }
    return pack_piece(v);
}

// Normalises and rotates the 8 heads of block number `block`.
DEVICE void head_turn_body(const HeadTurnArgs& args, i64 block) {
    begin_after_previous();
    const HeadNormArgs& a = args.norm;
    const i64 head = block * kWarpsPerBlock + (threadIdx.x >> 5), row = head / a.heads;
    if (row >= a.rows) return;
    u16* x = a.x + row * a.x_stride + (head - row * a.heads) * a.columns;
    RMSNormArgs one{};
    one.columns = a.columns;
    one.epsilon = a.epsilon;
    const f32 inverse = inverse_root(warp_total(squares<32>(one, x, lane_id(), true)), one);
    for (i32 i = 8 * lane_id(); i < a.columns; i += 8 * 32) {
        f32 v[8];
        uint4* at = reinterpret_cast<uint4*>(x + i);
        unpack_8(*at, v);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __fmul_rn(v[j], inverse);
        *at = turn_8(args.rotate, pack_8(v), row, i);
    }
}

template <int Units> DEVICE void quantise_turned_body(const QuantiseTurnedArgs& args) {
    begin_after_previous();
    const QuantiseRowsArgs& a = args.quantise;
    const QuantisedUnits<Units> at(a);
    u16* x = static_cast<u16*>(args.rotate.x);
    uint4 piece[Units];
#pragma unroll
    for (int u = 0; u < Units; u++) {
        piece[u] = make_uint4(0, 0, 0, 0);
        if (at.inside[u]) piece[u] = *reinterpret_cast<const uint4*>(x + at.row[u] * a.x_stride + at.column[u]);
    }
#pragma unroll
    for (int u = 0; u < Units; u++) {
        const i32 c = at.column[u] % args.rotate.head_dim;
        if (at.inside[u] && c >= args.rotate.offset && c < args.rotate.offset + args.rotate.rope) {
            piece[u] = turn_8(args.rotate, piece[u], at.row[u], c);
            *reinterpret_cast<uint4*>(x + at.row[u] * a.x_stride + at.column[u]) = piece[u];
        }
    }
    quantise_units(a, at, piece);
}

DEVICE void hyper_sum_body(const HyperSumArgs& args) {
    __shared__ f32 post[4];
    __shared__ f32 comb[16];
    __shared__ RowChoices choices;
    begin_after_previous();
    const HyperPostArgs& a = args.post;
    const NormQuantiseArgs& s = args.sum;
    const i64 row = blockIdx.x;
    const i32 n = a.streams, t = threadIdx.x, c = blockIdx.y * kPostColumns + 8 * t;
    if (t < n) post[t] = a.post[row * a.post_stride + t];
    if (t < n * n) comb[t] = a.comb[row * a.comb_stride + t];
    load_choices(s, row, choices); // also a block barrier, which makes comb visible
    if (c >= a.hidden) return;
    f32 v[8];
    unpack_piece(*reinterpret_cast<const uint4*>(s.x + row * s.x_stride + c), v);
    if (s.delta != nullptr) {
        f32 d[8];
        unpack_piece(*reinterpret_cast<const uint4*>(s.delta + row * s.delta_stride + c), d);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = __fadd_rn(v[j], d[j]);
        unpack_piece(pack_piece(v), v);
    }
    add_results<8>(s, row, c, choices, v);
    const uint4 sub = pack_piece(v);
    *reinterpret_cast<uint4*>(s.sum + row * s.sum_stride + c) = sub;
    f32 o[8];
    unpack_8(sub, o);
    post_columns<4, 8>(a, a.x + row * a.x_stride, o, post, comb, c);
}

constexpr i32 kMixThreads = kThreads + 32; // the last warp computes post and comb

// Mixes, normalises and quantises one row. A thread of the first eight warps keeps Pieces pieces of 8 columns of each
// stream. The sum of squares is added in the order of a norm with 512 threads: piece p of thread t counts as a piece of
// thread t if p is even, and of thread t + 256 if p is odd. With many rows (Many), the weights of the norm are loaded
// when they are needed: enough blocks run on an SM to hide the latency, and fewer registers are used.
template <int Pieces, bool Many> DEVICE void mix_norm_body(const MixNormArgs& args) {
    __shared__ f64 squares_of[kWarpsPerBlock], norm_of[2 * kWarpsPerBlock];
    __shared__ f32 carried_of[kFour];
    const HyperMixArgs& a = args.mix;
    const NormQuantiseArgs& n = args.norm;
    const i64 row = blockIdx.x;
    const i32 t = threadIdx.x, warp = t / 32;
    const bool mixes = warp < kWarpsPerBlock;
    WeightPiece weight[Pieces]; // does not depend on the previous kernel
#pragma unroll
    for (int p = 0; p < Pieces; p++) {
        const i32 i = t + p * kThreads;
        if (!Many && mixes && 8 * i < a.hidden) weight[p] = load_weight(n, i);
    }
    f32 base[kFour];
    const f32 scale = a.scale[0];
#pragma unroll
    for (int i = 0; i < kFour; i++) base[i] = a.base[i];
    begin_after_previous();
    const u16* x = a.x + row * a.x_stride;
    const f32* mix = a.mix + row * a.mix_stride;
    uint4 held[Pieces][kFour];
    f32 pre[kFour];
    if (!mixes && a.next != nullptr && lane_id() < kFour) carried_of[lane_id()] = carried_weight(a, row, lane_id());
    if (mixes) {
#pragma unroll
        for (int p = 0; p < Pieces; p++) {
            const i32 c = 8 * (t + p * kThreads);
#pragma unroll
            for (int i = 0; i < kFour; i++) {
                held[p][i] = c < a.hidden ? *reinterpret_cast<const uint4*>(x + static_cast<i64>(i) * a.hidden + c)
                                          : make_uint4(0, 0, 0, 0);
            }
        }
#pragma unroll
        for (int i = 0; i < kFour; i++) pre[i] = mix[i];
        f64 sum = 0;
#pragma unroll
        for (int p = 0; p < Pieces; p++) {
#pragma unroll
            for (int i = 0; i < kFour; i++) sum = __dadd_rn(sum, eight_squares(held[p][i]));
        }
        sum = warp_total(sum);
        if (lane_id() == 0) squares_of[warp] = sum;
    }
    __syncthreads();
    f64 sum = 0;
#pragma unroll
    for (int w = 0; w < kWarpsPerBlock; w++) sum = __dadd_rn(sum, squares_of[w]);
    RMSNormArgs all{};
    all.columns = kFour * a.hidden;
    all.epsilon = a.norm_epsilon;
    const f32 inverse = inverse_root(sum, all);
    if (!mixes) {
        const i32 lane = lane_id();
        if (a.kept != nullptr && lane < kFour * (2 + kFour)) a.kept[row * a.kept_stride + lane] = mix[lane];
        if (lane < kFour && a.next != nullptr) {
            a.next[row * a.next_stride + lane] = sigmoid(scale * (mix[lane] * inverse) + a.base[lane]) + a.epsilon;
        }
        if (lane < kFour) {
            a.post[row * a.post_stride + lane] =
                2.0f * sigmoid(a.scale[1] * (mix[kFour + lane] * inverse) + a.base[kFour + lane]);
        }
        if (lane == 0) {
            f32 m[kFour][kFour];
#pragma unroll
            for (int i = 0; i < kFour * kFour; i++) {
                m[i / kFour][i % kFour] = a.scale[2] * (mix[2 * kFour + i] * inverse) + a.base[2 * kFour + i];
            }
            comb_four(a, m, a.comb + row * a.comb_stride);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < kFour; i++) {
        pre[i] = a.next != nullptr ? carried_of[i] : sigmoid(scale * (pre[i] * inverse) + base[i]) + a.epsilon;
    }
    uint4 mixed[Pieces];
    f64 half[2] = {};
#pragma unroll
    for (int p = 0; p < Pieces; p++) {
        f32 added[8] = {};
#pragma unroll
        for (int i = 0; i < kFour; i++) {
            f32 v[8];
            unpack_8(held[p][i], v);
#pragma unroll
            for (int j = 0; j < 8; j++) added[j] = __fmaf_rn(pre[i], v[j], added[j]);
        }
        mixed[p] = pack_8(added);
        half[p % 2] = __dadd_rn(half[p % 2], eight_squares(mixed[p]));
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const f64 part = warp_total(half[h]);
        if (lane_id() == 0) norm_of[warp + h * kWarpsPerBlock] = part;
    }
    ptx::team_sync<kThreads>(1);
    f64 squares = 0;
#pragma unroll
    for (int w = 0; w < 2 * kWarpsPerBlock; w++) squares = __dadd_rn(squares, norm_of[w]);
    const f32 root = inverse_root(squares, n);
#pragma unroll
    for (int p = 0; p < Pieces; p++) {
        const i32 i = t + p * kThreads, column = 8 * i;
        if (column - 8 * lane_id() >= a.hidden) break; // uniform in a warp, because 16 lanes compute a scale together
        f32 v[8] = {};
        if (column < a.hidden) {
            f32 w[8];
            unpack_piece(mixed[p], v);
            unpack_weight(Many ? load_weight(n, i) : weight[p], n.weight_bf16, w);
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

DEVICE void parts_body(const PartsArgs& a) {
    i32 block = blockIdx.x;
    if (block < a.norm_blocks) return norm_quantise_body<1, false, kThreads>(a.norm, block);
    block -= a.norm_blocks;
    if (block < a.entry_blocks) return write_v4_body(a.entries, block);
    block -= a.entry_blocks;
    if (block < a.group_blocks) {
        const i32 entry = block / a.group_parts;
        return compress_body(a.groups, entry, block - entry * a.group_parts);
    }
    block -= a.group_blocks;
    if (block < a.key_blocks) {
        const i32 entry = block / a.key_parts;
        return compress_body(a.keys, entry, block - entry * a.key_parts);
    }
    block -= a.key_blocks;
    if (block < a.head_blocks) return head_turn_body(a.heads, block);
    block -= a.head_blocks;
    if (block < a.query_blocks) {
        const i32 token = block / a.query_parts;
        return index_query_body(a.queries, token, block - token * a.query_parts);
    }
    block -= a.query_blocks;
    if (block < a.index_blocks) return write_index_key_body(a.index, block);
    block -= a.index_blocks;
    if (block < 4 * a.put_rows) return put_four_body(a.puts, block / 4, block % 4);
    block -= 4 * a.put_rows;
    const i32 at = block / 4, which = block % 4;
    if (at < a.pick_rows) {
        const PickFourArgs& p = a.picks;
        const PickArgs& one = which == 0 ? p.first : which == 1 ? p.second : which == 2 ? p.third : p.fourth;
        if (at < one.rows) pick_body(one, at);
        return;
    }
    const AngleFourArgs& p = a.angles;
    angles_body(which == 0 ? p.first : which == 1 ? p.second : which == 2 ? p.third : p.fourth, at - a.pick_rows);
}
