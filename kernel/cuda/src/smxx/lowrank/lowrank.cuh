// Adds a low-rank matrix product to the output: out += input * weight transposed, where weight has many short rows. A
// DSpark head uses it to add the contribution of the previous token to the logits of all tokens.
//
// In:    input bf16 [rows, k], weight bf16 [columns, k].
// Out:   f32 [rows, columns]; the product is added to it.
// Warp:  16 columns at a time. Their weights are in registers and multiply eight rows of the input at a time. When a
//        16-byte piece of the weights has multiplied the last rows, the corresponding piece of the next columns is
//        loaded into its registers. The first weights are loaded before the previous kernel has finished. The order of
//        k inside an instruction can be chosen, so each lane loads 16 contiguous bytes of weights and of inputs.
// Bits:  the sums of a row are added in an order that does not depend on the other rows.
// Bytes: the weights are read once, the results are read and written.
// H200:  129280 columns, k 256, between launches that do not overlap: 1 row 24 us (66 MB).
#pragma once
#include "smxx/lowrank/args.h"

constexpr i32 kRankColumns = 16; // columns per warp

// Computes d += a * b for tiles of 16 x 16 and 16 x 8 (PTX ISA, mma.m16n8k16). Lane 4 * g + t holds rows g and g + 8
// of a, column g of b, and columns 2 * t and 2 * t + 1 of d.
DEVICE void rank_mma(f32 (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Loads 16 bytes of the weights of one column, from k on, or zeros beyond the matrix.
DEVICE uint4 rank_piece(const LowRankArgs& a, i64 column, i32 k) {
    if (column >= a.columns || k >= a.k) return make_uint4(0, 0, 0, 0);
    return *reinterpret_cast<const uint4*>(a.weight + column * a.weight_stride + k);
}

// Pieces is the number of pieces of 32 values of k. With more than 8 pieces there are no registers for the addresses of
// the next columns, so their weights are loaded only after the current columns are finished.
template <int Pieces> DEVICE void low_rank_body(const LowRankArgs& a) {
    constexpr bool kAhead = Pieces <= 8;
    const i32 lane = lane_id(), g = lane / 4, t = lane % 4;
    const i64 step = static_cast<i64>(gridDim.x) * kWarpsPerBlock * kRankColumns;
    i64 first = warp_row() * kRankColumns;
    uint4 r[2][Pieces]; // weights of columns g and g + 8 of the warp's 16
    auto fetch = [&](int p, i64 column) {
        r[0][p] = rank_piece(a, column + g, 32 * p + 8 * t);
        r[1][p] = rank_piece(a, column + g + 8, 32 * p + 8 * t);
    };
#pragma unroll
    for (int p = 0; p < Pieces; p++) fetch(p, first);
    begin_after_previous();
    for (; first < a.columns; first += step) {
        for (i32 n = 0; n < a.rows; n += 8) {
            f32 d[4] = {}, before[4] = {};
#pragma unroll
            for (int i = 0; i < 4; i++) { // rows 2 * t and 2 * t + 1 of columns g, then of g + 8
                const i32 row = n + 2 * t + (i & 1);
                const i64 column = first + g + 4 * (i & 2);
                if (row < a.rows && column < a.columns) before[i] = a.out[row * a.out_stride + column];
            }
            const bool given = n + g < a.rows, last = n + 8 >= a.rows;
            const u16* from = a.input + (n + g) * a.input_stride + 8 * t;
#pragma unroll
            for (int p = 0; p < Pieces; p++) {
                uint4 x = make_uint4(0, 0, 0, 0);
                if (given && 32 * p + 8 * t < a.k) x = *reinterpret_cast<const uint4*>(from + 32 * p);
                const uint4 v = r[0][p], w = r[1][p];
                rank_mma(d, v.x, w.x, v.y, w.y, x.x, x.y);
                rank_mma(d, v.z, w.z, v.w, w.w, x.z, x.w);
                if (kAhead && last) fetch(p, first + step);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const i32 row = n + 2 * t + (i & 1);
                const i64 column = first + g + 4 * (i & 2);
                if (row < a.rows && column < a.columns)
                    a.out[row * a.out_stride + column] = __fadd_rn(before[i], d[i]);
            }
        }
        if (!kAhead) {
#pragma unroll
            for (int p = 0; p < Pieces; p++) fetch(p, first + step);
        }
    }
}
