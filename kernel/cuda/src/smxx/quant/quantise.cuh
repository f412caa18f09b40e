// Quantises rows of bf16 to e4m3 with one scale per 128 columns, as internal/num quantises a block: scale = max(amax,
// 1e-4) / 448.
//
// Block: 8 warps. A warp has 256 columns of one row: 8 columns per lane, 16 lanes per scale. The bits depend only on
//        the 128 columns.
// Bytes: a bf16 row is read; half of its bytes, and 4 bytes per 128 columns, are written. The scales of adjacent rows
//        are adjacent, as matrix products read them.
// H200:  4096 rows of 7168: 38 us, 54 % of 4.3 TB/s; 64 rows 2.5 us.
#pragma once
#include "smxx/num.cuh"
#include "smxx/quant/args.h"

constexpr i32 kPieceColumns = 8;   // columns per lane
constexpr i32 kScaleLanes = 16;    // lanes that share a scale
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

// Returns the larger of two values, or NaN if one of them is NaN.
DEVICE f32 max_or_nan(f32 a, f32 b) {
    f32 r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}

// Returns index_scale rounded up to a power of two, without a division: 448 is 1.75 * 2^8, so the result is the power
// of two of amax times 2^-8, or times 2^-7 if the significand of amax is above 1.75.
DEVICE f32 power_scale(f32 amax) {
    return __uint_as_float((((__float_as_uint(fmaxf(amax, 1e-4f)) + 0x1FFFFFu) >> 23) - 8) << 23);
}

// Quantises a lane's piece together with the other lanes that share its scale. All of these lanes must call it; in
// lanes without columns, v is zero.
DEVICE uint2 quantise_piece(f32 v[kPieceColumns], bool exact, f32& scale) {
    f32 amax = 0.0f; // maximum magnitude; NaN is ignored, and infinity counts as the largest finite value
#pragma unroll
    for (int i = 0; i < kPieceColumns; i++) amax = max_or_nan(amax, fabsf(v[i]));
    const bool plain = amax == amax; // no NaN, which is the usual case; handling NaN takes a third of the instructions
    if (!plain) {
        amax = 0.0f;
#pragma unroll
        for (int i = 0; i < kPieceColumns; i++) amax = fmaxf(amax, fabsf(v[i]));
    }
#pragma unroll
    for (int d = 1; d < kScaleLanes; d *= 2) amax = fmaxf(amax, __shfl_xor_sync(ptx::kFullMask, amax, d));
    amax = fminf(amax, kLargestFinite);
    scale = exact ? index_scale(amax, true) : power_scale(amax);
    // The inverse of a power of two between 2^-23 and 2^120 is computed from its exponent, because a division would be
    // the longest dependency chain of this function.
    const f32 inverse = __uint_as_float(0x7F000000u - __float_as_uint(scale));
    if (plain && !exact) {
#pragma unroll
        for (int i = 0; i < kPieceColumns; i++) v[i] = __fmul_rn(v[i], inverse);
        return make_uint2(pack_e4m3_fast(v[0], v[1]) | pack_e4m3_fast(v[2], v[3]) << 16,
                          pack_e4m3_fast(v[4], v[5]) | pack_e4m3_fast(v[6], v[7]) << 16);
    }
#pragma unroll
    for (int i = 0; i < kPieceColumns; i++) v[i] = exact ? over(v[i], scale) : times(v[i], inverse);
    return make_uint2(pack_e4m3(v[0], v[1], v[2], v[3]), pack_e4m3(v[4], v[5], v[6], v[7]));
}

// Stores a lane's codes. The first lane of each 128 columns stores the scale.
DEVICE void store_piece(u8* codes, f32* scales, i64 scale_stride, i64 row, i32 column, uint2 w, f32 scale) {
    *reinterpret_cast<uint2*>(codes + column) = w;
    if (column % kScaleColumns == 0) scales[column / kScaleColumns * scale_stride + row] = scale;
}

// The units of 256 columns, in the order of rows, that a warp processes: one unit if there are few rows; four units
// if there are many rows, so that four loads are in flight together.
template <int Units> struct QuantisedUnits {
    i64 row[Units];
    i32 column[Units]; // first column of this lane
    bool given[Units], inside[Units];

    DEVICE explicit QuantisedUnits(const QuantiseRowsArgs& a) {
        const u32 segments = (a.columns + 32 * kPieceColumns - 1) / (32 * kPieceColumns);
        // The number of units fits 32 bits.
        const u32 first = (blockIdx.x * kWarpsPerBlock + (threadIdx.x >> 5)) * Units;
        u32 at = first / segments, segment = first - at * segments;
#pragma unroll
        for (int u = 0; u < Units; u++) {
            row[u] = at;
            column[u] = segment * 32 * kPieceColumns + lane_id() * kPieceColumns;
            given[u] = at < static_cast<u32>(a.rows); // uniform in a warp
            inside[u] = given[u] && column[u] < a.columns;
            if (++segment == segments) segment = 0, at++;
        }
    }
};

// Quantises the pieces of a warp's units and stores them.
template <int Units>
DEVICE void quantise_units(const QuantiseRowsArgs& a, const QuantisedUnits<Units>& at, const uint4 (&piece)[Units]) {
#pragma unroll
    for (int u = 0; u < Units; u++) {
        if (!at.given[u]) break;
        f32 v[kPieceColumns], scale;
        unpack_piece(piece[u], v);
        const uint2 w = quantise_piece(v, a.exact, scale);
        if (at.inside[u]) {
            u8* codes = a.codes + at.row[u] * a.code_stride;
            store_piece(codes, a.scales, a.scale_stride, at.row[u], at.column[u], w, scale);
        }
    }
}

template <int Units> DEVICE void quantise_rows_body(const QuantiseRowsArgs& a) {
    begin_after_previous();
    const QuantisedUnits<Units> at(a);
    uint4 piece[Units];
#pragma unroll
    for (int u = 0; u < Units; u++) {
        piece[u] = make_uint4(0, 0, 0, 0);
        if (at.inside[u]) piece[u] = *reinterpret_cast<const uint4*>(a.x + at.row[u] * a.x_stride + at.column[u]);
    }
    quantise_units(a, at, piece);
}
