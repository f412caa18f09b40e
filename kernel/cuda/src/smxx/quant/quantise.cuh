// Rows of bf16 to e4m3 with one scale for each 128 columns, as internal/num quantises a block: amax floored at 1e-4,
// over 448.
//
// Block    8 warps; a warp has 256 columns of one row, 8 of each lane, 16 lanes to a scale. Bits depend on the 128
//          columns alone.
// Traffic  a bf16 row read, half of its bytes and 4 per 128 columns written. Scales of neighbouring rows lie side by
//          side, as products read them.
// H200     4096 rows of 7168: 38 us, 54 % of 4.3 TB/s; 64 rows 2.5 us.
#pragma once
#include "smxx/num.cuh"
#include "smxx/quant/args.h"

constexpr i32 kPieceColumns = 8;   // of a lane
constexpr i32 kScaleLanes = 16;    // that share a scale
constexpr i32 kScaleColumns = kPieceColumns * kScaleLanes;
constexpr f32 kLargestFinite = 3.4028234663852886e38f;

DEVICE void unpack_piece(uint4 w, f32 v[kPieceColumns]) {
    u32 words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[2 * i] = bf16_low(words[i]);
        v[2 * i + 1] = bf16_high(words[i]);
    }
}

// Quantises a lane's piece together with the other lanes of its scale, all of which must be here; v of lanes without
// columns is zero.
DEVICE uint2 quantise_piece(f32 v[kPieceColumns], bool exact, f32& scale) {
    f32 amax = 0.0f; // NaN does not count; infinity counts as the largest finite value
#pragma unroll
    for (int i = 0; i < kPieceColumns; i++) amax = fmaxf(amax, fabsf(v[i]));
#pragma unroll
    for (int d = 1; d < kScaleLanes; d *= 2) amax = fmaxf(amax, __shfl_xor_sync(ptx::kFullMask, amax, d));
    scale = index_scale(fminf(amax, kLargestFinite), exact);
    f32 inverse = __fdiv_rn(1.0f, scale); // exact when the scale is a power of two
#pragma unroll
    for (int i = 0; i < kPieceColumns; i++) v[i] = exact ? over(v[i], scale) : times(v[i], inverse);
    return make_uint2(pack_e4m3(v[0], v[1], v[2], v[3]), pack_e4m3(v[4], v[5], v[6], v[7]));
}

// A lane's codes, and the scale from the first lane of each 128 columns.
DEVICE void store_piece(u8* codes, f32* scales, i64 scale_stride, i64 row, i32 column, uint2 w, f32 scale) {
    *reinterpret_cast<uint2*>(codes + column) = w;
    if (column % kScaleColumns == 0) scales[column / kScaleColumns * scale_stride + row] = scale;
}

DEVICE void quantise_rows_body(const QuantiseRowsArgs& a) {
    begin_after_previous();
    const i32 segments = (a.columns + 32 * kPieceColumns - 1) / (32 * kPieceColumns);
    const i64 unit = warp_row();
    const i64 row = unit / segments;
    if (row >= a.rows) return;
    const i32 column = static_cast<i32>(unit - row * segments) * 32 * kPieceColumns + lane_id() * kPieceColumns;
    f32 v[kPieceColumns] = {};
    if (column < a.columns) unpack_piece(*reinterpret_cast<const uint4*>(a.x + row * a.x_stride + column), v);
    f32 scale;
    uint2 w = quantise_piece(v, a.exact, scale);
    if (column < a.columns) store_piece(a.codes + row * a.code_stride, a.scales, a.scale_stride, row, column, w, scale);
}
