// Merges small blocks of e4m3 codes, such as 32 x 32, into blocks of 128 x 128 with one scale (kernel.Weight.Merges).
//
// In:    codes; a power of two as the scale of each small block.
// Out:   the largest scale of each 128 x 128, and the codes relative to it, rounded to nearest even. Only codes that
//        become subnormal can change their values.
// Block: a merged block. Every thread finds the largest scale, and rescales four codes at a time in place.
#pragma once
#include "smxx/weight/draw.cuh"

constexpr i32 kMergeSide = 128;

DEVICE void merge_body(const MergeArgs& a) {
    begin_after_previous();
    const i32 row = blockIdx.y * kMergeSide, column = blockIdx.x * kMergeSide;
    const i32 rows = min(kMergeSide, a.rows - row), columns = min(kMergeSide, a.columns - column);
    f32 most = 0.0f;
    for (i32 r = row; r < row + rows; r += a.block_rows) {
        for (i32 c = column; c < column + columns; c += a.block_columns)
            most = fmaxf(most, a.scales[static_cast<i64>(r / a.block_rows) * a.scale_stride + c / a.block_columns]);
    }
    if (threadIdx.x == 0) a.to[static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x] = most;
    for (i32 i = threadIdx.x; i < rows * (kMergeSide / 4); i += kThreads) {
        const i32 r = row + i / (kMergeSide / 4), c = column + i % (kMergeSide / 4) * 4;
        if (c >= a.columns) continue;
        const f32 scale = a.scales[static_cast<i64>(r / a.block_rows) * a.scale_stride + c / a.block_columns];
        if (scale == most) continue;
        u32* four = reinterpret_cast<u32*>(a.codes + static_cast<i64>(r) * a.columns + c);
        const f32 quotient = __fdiv_rn(scale, most);
        f32 v[4];
        unpack_e4m3(*four, v);
        *four = pack_e4m3(__fmul_rn(v[0], quotient), __fmul_rn(v[1], quotient), __fmul_rn(v[2], quotient),
                          __fmul_rn(v[3], quotient));
    }
}
