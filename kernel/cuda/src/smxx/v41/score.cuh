// Index scores over FP4 keys of a paged cache (v41 spec, 2.4), for every key of a row or for the keys of given blocks,
// and the largest score of every block.
//
//     score[s] = sum over 32 heads of weight_h * max(0, query_h . key_s)
//
// In:      queries bf16 [rows, 32, 128], keys as smxx/v41/write.cuh stores them, one page table per row.
// Block:   8 warps, 1024 columns of a row. A warp takes 32 keys at a time as four tiles of 8; the 32 heads are two
//          operands of 16 rows that stay in registers. A lane widens one group of 32 values of a key, which has one
//          exponent. These 32 values are the lane's elements of the inner dimension, in the order in which shifts and
//          masks extract them from a word; queries are permuted to this order when they are loaded.
// Bytes:   68 for each key and row; rows of a prompt find the keys in L2.
// Numbers: an e2m1 code c shifted to the exponent position of bf16 is c * 2^-126. A factor of 2^-64 keeps products in
//          range, and the weights contain its inverse. Products are exact, sums float32 in a fixed order.
#pragma once
#include "ptx/mma.cuh"
#include "smxx/num.cuh"
#include "smxx/v41/args.h"

constexpr i32 kScoreHeads = 32;
constexpr i32 kScoreTiles = 4;                       // tiles of 8 keys that a warp processes together
constexpr i32 kScoreStep = 8 * kScoreTiles;          // keys per warp and step
constexpr i32 kScoreKeys = 4 * kScoreStep * kWarpsPerBlock; // keys per block

DEVICE u32 bytes_of(u32 a, u32 b, u32 select) {
    u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(select));
    return r;
}

// Multiplies two pairs of bf16; subnormal numbers are not flushed to zero.
DEVICE u32 times_bf16(u32 a, u32 b) {
    u32 r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0x80008000u));
    return r;
}

struct ScoreKey {
    uint4 codes; // the 32 codes of the lane's group
    u32 exponent;
};

// Loads the lane's group of the key of a column: its codes and its exponent.
DEVICE ScoreKey score_key(const ScoreV41Args& a, i64 row, const i32* table, i32 column, i32 group) {
    i32 key = column;
    if (a.blocks != nullptr) {
        const i32 block = min(column >> a.block_shift, a.most_blocks - 1);
        key = (a.blocks[row * a.block_stride + block] << a.block_shift) + (column & ((1 << a.block_shift) - 1));
    }
    const i32 at = key >> a.page_shift;
    const i32 page = key >= 0 && at < a.pages ? table[at] : -1;
    ScoreKey k{make_uint4(0, 0, 0, 0), 0};
    if (page < 0 || page >= (a.pool.slots >> a.page_shift)) {
        raise_fault(a.faults, kFaultSlot);
        return k;
    }
    const u8* from = a.pool.base + page * a.pool.page_bytes;
    const i32 in = key & ((1 << a.page_shift) - 1);
    k.codes = *reinterpret_cast<const uint4*>(from + (in << 6) + 16 * group);
    k.exponent = from[(64 << a.page_shift) + 4 * in + group];
    return k;
}

// Widens the eight codes of a word; v[i] is a pair of codes i and i + 4.
DEVICE void widen_e2m1(u32 word, u32 scale, u32 (&v)[4]) {
    v[0] = (word << 6 & 0x01C001C0u) | (word << 12 & 0x80008000u);
    v[1] = (word << 2 & 0x01C001C0u) | (word << 8 & 0x80008000u);
    v[2] = (word >> 2 & 0x01C001C0u) | (word << 4 & 0x80008000u);
    v[3] = (word >> 6 & 0x01C001C0u) | (word & 0x80008000u);
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = times_bf16(v[i], scale);
}

DEVICE void score_v41_body(const ScoreV41Args& a) {
    begin_after_previous();
    const i64 row = blockIdx.x;
    const i32 n = min(a.lengths[row], a.columns), first = blockIdx.y * kScoreKeys;
    if (n <= a.skip || first >= n) return;
    const i32 lane = lane_id(), g = lane / 4, t = lane % 4;
    u32 q[2][8][4];
    f32 weight[2][2];
    const u16* queries = a.queries + row * (kScoreHeads * 128) + 32 * t;
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const i32 head = 16 * m + 8 * half + g;
            const uint4* from = reinterpret_cast<const uint4*>(queries + head * 128);
#pragma unroll
            for (int j = 0; j < 4; j++) { // dimensions 8j to 8j+7 of the group
                const uint4 v = from[j];
                q[m][2 * j][half] = bytes_of(v.x, v.z, 0x5410);
                q[m][2 * j][2 + half] = bytes_of(v.x, v.z, 0x7632);
                q[m][2 * j + 1][half] = bytes_of(v.y, v.w, 0x5410);
                q[m][2 * j + 1][2 + half] = bytes_of(v.y, v.w, 0x7632);
            }
            weight[m][half] = a.weights[row * kScoreHeads + head] * 0x1p64f;
        }
    }
    const i32 tables = a.table_rows[row];
    if (tables < 0 || tables >= a.tables) {
        raise_fault(a.faults, kFaultSlot);
        return;
    }
    const i32* table = a.table + tables * a.table_stride;
    const i32 end = min(n, first + kScoreKeys);
    for (i32 s = first + static_cast<i32>(threadIdx.x / 32) * kScoreStep; s < end; s += kWarpsPerBlock * kScoreStep) {
        ScoreKey keys[kScoreTiles];
#pragma unroll
        for (int i = 0; i < kScoreTiles; i++) keys[i] = score_key(a, row, table, min(s + 8 * i + g, n - 1), t);
        f32 part[kScoreTiles][2];
#pragma unroll
        for (int i = 0; i < kScoreTiles; i++) {
            u32 scale = min(max(keys[i].exponent + 62u, 1u), 254u) << 7;
            scale |= scale << 16;
            f32 sum[2][4] = {};
            const u32 words[4] = {keys[i].codes.x, keys[i].codes.y, keys[i].codes.z, keys[i].codes.w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                u32 v[4];
                widen_e2m1(words[j], scale, v);
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    ptx::multiply_16x8(sum[m], q[m][2 * j], v[0], v[1]);
                    ptx::multiply_16x8(sum[m], q[m][2 * j + 1], v[2], v[3]);
                }
            }
#pragma unroll
            for (int c = 0; c < 2; c++) {
                f32 x = weight[0][0] * fmaxf(sum[0][c], 0.0f);
                x = __fmaf_rn(weight[0][1], fmaxf(sum[0][2 + c], 0.0f), x);
                x = __fmaf_rn(weight[1][0], fmaxf(sum[1][c], 0.0f), x);
                part[i][c] = __fmaf_rn(weight[1][1], fmaxf(sum[1][2 + c], 0.0f), x);
            }
        }
        // Sums over the 8 lanes that have different heads: each round keeps half of the columns.
        const bool upper = lane & 16, middle = lane & 8, odd = lane & 4;
        f32 two[2][2], one[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const f32 own = upper ? part[2 + i][c] : part[i][c], other = upper ? part[i][c] : part[2 + i][c];
                two[i][c] = own + __shfl_xor_sync(ptx::kFullMask, other, 16);
            }
        }
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const f32 own = middle ? two[1][c] : two[0][c], other = middle ? two[0][c] : two[1][c];
            one[c] = own + __shfl_xor_sync(ptx::kFullMask, other, 8);
        }
        const f32 score = (odd ? one[1] : one[0]) + __shfl_xor_sync(ptx::kFullMask, odd ? one[0] : one[1], 4);
        const i32 column = s + (upper ? 16 : 0) + (middle ? 8 : 0) + 2 * t + (odd ? 1 : 0);
        if (column < n) a.scores[row * a.stride + column] = score;
    }
}

// Computes the largest score of each block of keys; a thread has one block.
DEVICE void block_max_body(const BlockMaxArgs& a) {
    begin_after_previous();
    const i64 row = blockIdx.x;
    const i32 n = min(a.lengths[row], a.columns), block = blockIdx.y * kThreads + threadIdx.x, from = block * a.size;
    if (n <= a.skip || from >= n) return;
    const f32* scores = a.scores + row * a.stride;
    f32 top = __uint_as_float(0xFF800000u); // minus infinity
    for (i32 i = from; i < min(from + a.size, n); i++) top = fmaxf(top, scores[i]);
    a.out[row * a.out_stride + block] = from + a.size >= n ? __uint_as_float(kInfBits) : top;
}
