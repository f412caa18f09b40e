// Quantises many rows. The results are bitwise equal to those of quantise.cuh.
//
// H200:  by calculation, the divisions of quantise_piece by exact scales limit 8192 rows of 16384 to 170 us (207 us
//        were measured on 2026-11-19); without them, memory limits these rows to 100 us.
#pragma once
#include "smxx/quant/divide.cuh"
#include "smxx/quant/quantise.cuh"

// Is quantise_piece with an exact scale. All lanes of a warp must call it.
DEVICE uint2 quantise_exactly(f32 v[kPieceColumns], f32& scale) {
    f32 amax = 0.0f;
#pragma unroll
    for (int i = 0; i < kPieceColumns; i++) amax = max_or_nan(amax, fabsf(v[i]));
    if (__any_sync(ptx::kFullMask, !(amax <= kLargestFinite))) return quantise_piece(v, true, scale);
#pragma unroll
    for (int d = 1; d < kScaleLanes; d *= 2) amax = fmaxf(amax, __shfl_xor_sync(ptx::kFullMask, amax, d));
    scale = index_scale(amax, true);
    const f32 reciprocal = __frcp_rn(scale);
#pragma unroll
    for (int i = 0; i < kPieceColumns; i++) v[i] = over_scale(v[i], scale, reciprocal);
    return make_uint2(pack_e4m3_fast(v[0], v[1]) | pack_e4m3_fast(v[2], v[3]) << 16,
                      pack_e4m3_fast(v[4], v[5]) | pack_e4m3_fast(v[6], v[7]) << 16);
}

template <int Units> DEVICE void quantise_many_body(const QuantiseRowsArgs& a) {
    begin_after_previous();
    const QuantisedUnits<Units> at(a);
    uint4 piece[Units];
#pragma unroll
    for (int u = 0; u < Units; u++) {
        piece[u] = make_uint4(0, 0, 0, 0);
        if (at.inside[u]) piece[u] = *reinterpret_cast<const uint4*>(a.x + at.row[u] * a.x_stride + at.column[u]);
    }
    if (!a.exact) {
        quantise_units(a, at, piece);
        return;
    }
#pragma unroll
    for (int u = 0; u < Units; u++) {
        if (!at.given[u]) break;
        f32 v[kPieceColumns], scale;
        unpack_piece(piece[u], v);
        const uint2 w = quantise_exactly(v, scale);
        if (at.inside[u]) {
            u8* codes = a.codes + at.row[u] * a.code_stride;
            store_piece(codes, a.scales, a.scale_stride, at.row[u], at.column[u], w, scale);
        }
    }
}
