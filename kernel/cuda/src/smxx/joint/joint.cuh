// Small things that follow each other, in one launch: each with the arithmetic and the roundings of its own kernel.
//
// Put      rows to the places of up to four tensors (smxx/pick/pick.cuh).
// Turned   heads are normalised and rotated (smxx/hyper/head_norm.cuh, smxx/rope/rope.cuh): a warp has a head.
// Quantise heads are rotated, in place, and quantised (smxx/quant/quantise.cuh).
// Sum      what experts gave is added up (smxx/quant/norm.cuh) and written into the residual streams
//          (smxx/hyper/post.cuh): a block has 2048 columns of a row, eight neighbours for each thread.
#pragma once
#include "smxx/hyper/head_norm.cuh"
#include "smxx/hyper/post.cuh"
#include "smxx/joint/args.h"
#include "smxx/pick/pick.cuh"
#include "smxx/quant/norm.cuh"

DEVICE void put_four_body(const PutFourArgs& a) {
    const PutArgs& one = blockIdx.y == 0 ? a.first : blockIdx.y == 1 ? a.second : blockIdx.y == 2 ? a.third : a.fourth;
    if (static_cast<i32>(blockIdx.x) < one.rows) put_body(one);
}

// Rotates the pairs of eight neighbouring columns of a row, from column c of a head on, and rounds them; columns that
// are not rotated stay.
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

DEVICE void head_turn_body(const HeadTurnArgs& args) {
    begin_after_previous();
    const HeadNormArgs& a = args.norm;
    const i64 head = warp_row(), row = head / a.heads;
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

DEVICE void quantise_turned_body(const QuantiseTurnedArgs& args) {
    begin_after_previous();
    const QuantiseRowsArgs& a = args.quantise;
    const i32 segments = (a.columns + 32 * kPieceColumns - 1) / (32 * kPieceColumns);
    const i64 unit = warp_row();
    const i64 row = unit / segments;
    if (row >= a.rows) return;
    const i32 column = static_cast<i32>(unit - row * segments) * 32 * kPieceColumns + lane_id() * kPieceColumns;
    f32 v[kPieceColumns] = {};
    if (column < a.columns) {
        const i32 c = column % args.rotate.head_dim;
        uint4* at = reinterpret_cast<uint4*>(static_cast<u16*>(args.rotate.x) + row * a.x_stride + column);
        uint4 piece = *at;
        if (c >= args.rotate.offset && c < args.rotate.offset + args.rotate.rope) {
            piece = turn_8(args.rotate, piece, row, c);
            *at = piece;
        }
        unpack_piece(piece, v);
    }
    f32 scale;
    uint2 w = quantise_piece(v, a.exact, scale);
    if (column < a.columns) store_piece(a.codes + row * a.code_stride, a.scales, a.scale_stride, row, column, w, scale);
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
    load_choices(s, row, choices); // a barrier of the block
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
