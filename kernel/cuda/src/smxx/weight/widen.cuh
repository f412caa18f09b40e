// Converts a matrix to bf16, applies its block scales, and transposes it for matrix products that read it transposed.
//
// In:    [rows, columns] f32, bf16, f16 or e4m3 with a float32 scale per block.
// Out:   bf16 in the order of the input, transposed, or both, rounded once to nearest even.
// Block: a tile of 32 x 32 values, 8 rows at a time; the transposed tile passes through shared memory.
// Bytes: the matrix is read once and each output is written once, in runs of 64 bytes.
#pragma once
#include "smxx/weight/draw.cuh"

constexpr i32 kTile = 32;

DEVICE f32 read_value(const void* base, i64 at, i32 type) {
    if (type != kE4M3) return read_float(base, at, type);
    f32 v[4];
    unpack_e4m3(static_cast<const u8*>(base)[at], v);
    return v[0];
}

DEVICE void widen_body(const WidenArgs& a) {
    __shared__ u16 tile[kTile][kTile + 2]; // padded, so that accesses to a column have no bank conflicts
    begin_after_previous();
    const i32 x = threadIdx.x % kTile, y = threadIdx.x / kTile;
    const i32 column = blockIdx.x * kTile + x;
    for (i32 i = y; i < kTile; i += kWarpsPerBlock) {
        const i32 row = blockIdx.y * kTile + i;
        if (row >= a.rows || column >= a.columns) continue;
        const i64 at = static_cast<i64>(row) * a.columns + column;
        u16 bits;
        if (a.type == kBF16) {
            bits = static_cast<const u16*>(a.from)[at];
        } else {
            f32 v = read_value(a.from, at, a.type);
            if (a.scales != nullptr) {
                const i64 block = static_cast<i64>(row / a.block_rows) * a.scale_stride + column / a.block_columns;
                v = __fmul_rn(v, a.scales[block]);
            }
            bits = static_cast<u16>(bf16_bits(v));
        }
        if (a.out != nullptr) a.out[at] = bits;
        tile[i][x] = bits;
    }
    if (a.turned == nullptr) return;
    __syncthreads();
    const i32 row = blockIdx.y * kTile + x;
    for (i32 i = y; i < kTile; i += kWarpsPerBlock) {
        const i32 to = blockIdx.x * kTile + i;
        if (row < a.rows && to < a.columns) a.turned[static_cast<i64>(to) * a.turned_stride + row] = tile[x][i];
    }
}
