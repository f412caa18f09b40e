// Packed formats whose codes are points of a lattice: a byte stands for eight or four magnitudes, seven bits for the
// signs of eight values, of which an even number is negative. Rows stay as they are stored, fields of all rows side by
// side: a lane looks up the two values of a point that it has.
#pragma once

#include "sm90/packed/decode.cuh"
#include "sm90/packed/lattice.h"

namespace sparrow_packed {

// The signs of a lane's two values of eight: bits 15 and 31. Lane%4 = 3 has the eighth, which makes their number even.
__device__ __forceinline__ u32 signs_of(u32 seven, u32 quarter, u32 eighth) {
    const u32 t = (seven & 127u) >> (2 * quarter) | (__popc(seven & 127u) & eighth) << 1;
    return (t & 1u) << 15 | (t & 2u) << 30;
}

// IQ2_XXS: d * (2s + 1) / 8 times a point of eight. A unit: [8 groups of 32][row] of four points and a word of four
// times seven signs and s, then d of all rows.
struct IQ2XXS {
    static constexpr int K = 256, Exponent = 0;
    static constexpr int Bytes = 64 * 66;

    u32 at, quarter, eighth;
    float upper, lower;

    __device__ __forceinline__ void begin(u32 unit, u32 warp, u32 lane) {
        const u32 row = 16 * warp + lane / 4;
        at = unit + row * 8;
        quarter = lane % 4;
        eighth = quarter == 3 ? 1 : 0;
        upper = half_float(load_2(unit + 4096 + row * 2)) * 0.125f;
        lower = half_float(load_2(unit + 4096 + row * 2 + 16)) * 0.125f;
    }
    static __device__ __forceinline__ u32 scale(float d, u32 word) {
        const float s = d * static_cast<float>(2 * (word >> 28) + 1);
        return pack_pair(s, s);
    }
    __device__ __forceinline__ u32 value(const uint2& v, int octet, u32 scale) const {
        const u32 point = __ldg(kIQ2XXS + (v.x >> (8 * octet) & 255u) * 4 + quarter);
        return times(point ^ signs_of(v.y >> (7 * octet), quarter, eighth), scale);
    }
    __device__ __forceinline__ void batch(u32 (&a)[4][4], int b) {
#pragma unroll
        for (int g = 0; g < 2; ++g) {
            const uint2 u = load_8(at + (2 * b + g) * 512), l = load_8(at + (2 * b + g) * 512 + 64);
            const u32 us = scale(upper, u.y), ls = scale(lower, l.y);
#pragma unroll
            for (int s = 0; s < 2; ++s) {
                a[2 * g + s][0] = value(u, 2 * s, us);
                a[2 * g + s][1] = value(l, 2 * s, ls);
                a[2 * g + s][2] = value(u, 2 * s + 1, us);
                a[2 * g + s][3] = value(l, 2 * s + 1, ls);
            }
        }
    }
};

// IQ3_XXS: d * (2s + 1) / 4 times points of four. A unit: [8 groups][row] of eight points, then so a word of signs and
// s, then d of all rows.
struct IQ3XXS {
    static constexpr int K = 256, Exponent = 0;
    static constexpr int Bytes = 64 * 98;

    u32 at, words, quarter, eighth;
    float upper, lower;

    __device__ __forceinline__ void begin(u32 unit, u32 warp, u32 lane) {
        const u32 row = 16 * warp + lane / 4;
        at = unit + row * 8;
        words = unit + 4096 + row * 4;
        quarter = lane % 4;
        eighth = quarter == 3 ? 1 : 0;
        upper = half_float(load_2(unit + 6144 + row * 2)) * 0.25f;
        lower = half_float(load_2(unit + 6144 + row * 2 + 16)) * 0.25f;
    }
    // Values of an octet: two points, of which the lane's is the second for lanes 2 and 3 of four.
    __device__ __forceinline__ u32 value(const uint2& v, u32 word, int octet, u32 scale) const {
        const u32 points = (octet < 2 ? v.x : v.y) >> (16 * (octet % 2)) >> (8 * (quarter / 2));
        const u32 point = __ldg(kIQ3XXS + (points & 255u) * 2 + quarter % 2);
        return times(point ^ signs_of(word >> (7 * octet), quarter, eighth), scale);
    }
    __device__ __forceinline__ void batch(u32 (&a)[4][4], int b) {
#pragma unroll
        for (int g = 0; g < 2; ++g) {
            const int group = 2 * b + g;
            const uint2 u = load_8(at + group * 512), l = load_8(at + group * 512 + 64);
            const u32 uw = load_4(words + group * 256), lw = load_4(words + group * 256 + 32);
            const u32 us = IQ2XXS::scale(upper, uw), ls = IQ2XXS::scale(lower, lw);
#pragma unroll
            for (int s = 0; s < 2; ++s) {
                a[2 * g + s][0] = value(u, uw, 2 * s, us);
                a[2 * g + s][1] = value(l, lw, 2 * s, ls);
                a[2 * g + s][2] = value(u, uw, 2 * s + 1, us);
                a[2 * g + s][3] = value(l, lw, 2 * s + 1, ls);
            }
        }
    }
};

}  // namespace sparrow_packed
