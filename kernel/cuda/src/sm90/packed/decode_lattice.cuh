// Packed formats whose codes are points of a lattice: an index selects the magnitudes of eight or four values. A lane
// looks up points in a table in shared memory, in which each point is repeated over 128 bytes (64 bytes for large
// grids) to avoid bank conflicts.
//
// These are turned formats (decode.cuh): lane l has columns 16(l%4) to 16(l%4)+15 of a batch, which are two octets
// (groups of eight values).
//
// Layout of a unit. Octet p = 2 * octet of the lane in a batch + row (0 upper, 1 lower):
//   indices  [warp][lane][batch] of four octets; with two points per octet, [warp][half of the unit][lane][batch of
//            the half]: the lower eight bits of each index, one byte per point
//   upper    [warp][lane][batch] bytes, if there are more than 256 points: two bits for each octet
//   signs    [warp][lane][batch] words: the signs of the first, third, fifth and seventh value of an octet at bits 4p
//            to 4p+3, and of the other values 16 bits above
//   scales   [row][8 or 16 numbers of 4 bits]: for groups of 32 or of 16 values
//   d        [row] f16
#pragma once

#include "sm90/packed/config.h"
#include "sm90/packed/lattice.h"

namespace sparrow_packed {

// Values are kEighths * d / 8 * (2s + 1) times a point. kPoints: points per octet. kUpper: there are more than 256
// points. kFine: a scale per 16 values instead of 32. kApart: bytes between points in the table.
template <int kPoints, int kEighths, bool kUpper, bool kFine, int kApart>
struct Lattice {
    static constexpr bool Turned = true;
    static constexpr int K = 256, Exponent = 0;
    static constexpr int Points = kPoints, Apart = kApart;
    static constexpr bool Upper = kUpper, Fine = kFine;
    static constexpr int UpperAt = 2048 * Points, SignsAt = UpperAt + (Upper ? 512 : 0), ScalesAt = SignsAt + 2048;
    static constexpr int ScaleBytes = Fine ? 8 : 4;  // bytes of scales per row
    static constexpr int HalfAt = ScalesAt + 64 * ScaleBytes, Bytes = HalfAt + 128;

    u32 table, upper;
    u32 words[4 * Points], signs[4];  // indices and signs of the batches
    u32 scales[2][Fine ? 2 : 1];  // scales of the upper row and the lower row
    float wide[2], less[2];

    __device__ __forceinline__ void begin(u32 unit, u32 warp, u32 lane) {
        const u32 row = 16 * warp + lane / 4;
#pragma unroll
        for (int h = 0; h < Points; ++h) {
            take(words + 4 * h, unit + (warp * Points + h) * 512 + lane * 16);
        }
        take(signs, unit + SignsAt + warp * 512 + lane * 16);
        upper = Upper ? load_4(unit + UpperAt + warp * 128 + lane * 4) : 0;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const u32 of_row = row + 8 * r;
            if constexpr (Fine) {
                const uint2 v = load_8(unit + ScalesAt + of_row * 8);
                scales[r][0] = v.x >> (lane % 4 * 4), scales[r][1] = v.y >> (lane % 4 * 4);
            } else {
                scales[r][0] = load_4(unit + ScalesAt + of_row * 4) >> (lane % 4 / 2 * 4);
            }
            const float d = half_float(load_2(unit + HalfAt + of_row * 2)) * (0.125f * kEighths);
            wide[r] = 32 * d, less[r] = -31 * d;
        }
    }
    static __device__ __forceinline__ void take(u32* to, u32 from) {
        const uint4 v = load_16(from);
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    }
    // Writing s to the four highest fraction bits of a float gives 1 + s / 16, so nothing is rounded before the
    // conversion to bf16.
    __device__ __forceinline__ u32 scale(int batch, int r) const {
        const u32 word = scales[r][Fine ? batch / 2 : 0];
        const int bit = Fine ? batch % 2 * 16 : batch * 8;
        const u32 up = bit < 19 ? word << (19 - bit) : word >> (bit - 19);
        const float f = __uint_as_float((up & 0x00780000u) | 0x3F800000u);
        const float s = __fmaf_rn(f, wide[r], less[r]);
        return pack_pair(s, s);
    }
    // Returns two values of an octet with their signs, times a scale. n = 4 * octet + pair. Rotations and shifts run
    // on different execution units (shifts are compiled to multiplications), so both are used.
    static __device__ __forceinline__ u32 value(u32 magnitudes, u32 signs, int n, u32 scale) {
        const u32 turned = n % 3 == 0 ? __funnelshift_l(signs, signs, 15 - n) : signs << (15 - n);
        return times(magnitudes ^ (turned & 0x80008000u), scale);
    }
    // Returns the address of a point. The lower bits of its index are a byte of a word, and its upper bits are at
    // bits 8 and 9.
    __device__ __forceinline__ u32 point(u32 word, int byte, u32 upper) const {
        return (__byte_perm(word, 0, 0x4440 + byte) | upper) * Apart + table;
    }
    __device__ __forceinline__ void batch(u32 (&a)[4][4], int b) const {
        const u32 by[2] = {scale(b, 0), scale(b, 1)};
#pragma unroll
        for (int p = 0; p < 4; ++p) {
            const int g = p / 2, r = p % 2;
            const int bit = 8 * b + 2 * p;  // position of the octet's upper index bits, which move to bits 8 and 9
            const u32 two = bit < 8 ? upper << (8 - bit) : upper >> (bit - 8);
            uint4 v;
            if constexpr (Points == 2) {
                const uint2 first = load_8(point(words[2 * b + g], 2 * r, two & 0x100u)),
                            second = load_8(point(words[2 * b + g], 2 * r + 1, two >> 1 & 0x100u));
                v = make_uint4(first.x, first.y, second.x, second.y);
            } else {
                v = load_16(point(words[b], p, two & 0x300u));
            }
            const u32 s = by[r];
            a[2 * g][r] = value(v.x, signs[b], 4 * p, s);
            a[2 * g][2 + r] = value(v.y, signs[b], 4 * p + 1, s);
            a[2 * g + 1][r] = value(v.z, signs[b], 4 * p + 2, s);
            a[2 * g + 1][2 + r] = value(v.w, signs[b], 4 * p + 3, s);
        }
    }
};
struct IQ2XXS : Lattice<1, 1, false, false, 128> {};
struct IQ2XS : Lattice<1, 1, true, true, 128> {};
struct IQ2S : Lattice<1, 1, true, true, 64> {};
struct IQ3XXS : Lattice<2, 2, false, false, 128> {};
struct IQ3S : Lattice<2, 8, true, false, 64> {};

// The table of a grid: the values of each point as bf16, repeated over Apart bytes.
template <class F, int Count, const u16* Grid>
struct PointTable {
    static constexpr int TableBytes = Count * F::Apart;
    static constexpr int kWords = 4 / F::Points;  // words per point

    // Returns two values of a point as a pair of bf16.
    static __device__ __forceinline__ u32 pair(u32 point, u32 word) {
        u32 v[2];
        for (int i = 0; i < 2; ++i) {
            if constexpr (F::Points == 1) {
                const u32 code = point >> (4 * word + 2 * i) & 3;
                v[i] = code == 0 ? 8 : code == 1 ? 25 : 43;
            } else {
                const u32 code = point >> (8 * word + 4 * i) & 7;
                v[i] = F::Upper ? 1 + 2 * code : code == 7 ? 62 : 4 + 8 * code;
            }
        }
        return pack_pair(static_cast<float>(v[0]), static_cast<float>(v[1]));
    }
    static __device__ __forceinline__ void fill(u8* table, u32 thread, u32 threads) {
        for (u32 i = thread; i < Count * kWords; i += threads) {
            const u32 word = pair(Grid[i / kWords], i % kWords);
            u32* to = reinterpret_cast<u32*>(table) + i / kWords * (F::Apart / 4) + i % kWords;
            for (int j = 0; j < F::Apart / 4; j += kWords) {
                to[j] = word;
            }
        }
    }
    static __device__ __forceinline__ u32 of_lane(u32 table, u32 lane) {
        return table + lane * (kWords * 4) % F::Apart;
    }
};
template <>
struct Table<IQ2XXS> : PointTable<IQ2XXS, 256, kIQ2XXS> {};
template <>
struct Table<IQ2XS> : PointTable<IQ2XS, 512, kIQ2XS> {};
template <>
struct Table<IQ2S> : PointTable<IQ2S, 1024, kIQ2S> {};
template <>
struct Table<IQ3XXS> : PointTable<IQ3XXS, 256, kIQ3XXS> {};
template <>
struct Table<IQ3S> : PointTable<IQ3S, 512, kIQ3S> {};

// IQ4_NL and IQ4_XS: one of sixteen numbers times a scale per 32 values. Codes are stored like 4-bit codes
// (decode.cuh), but a byte holds both codes of a pair, and the table holds pairs. Scales are [row][8] bf16.
struct IQ4 {
    static constexpr bool Turned = false;
    static constexpr int K = 256, Exponent = 0;
    static constexpr int Bytes = Codes4::CodeBytes + 64 * 16;

    Codes4 codes;
    u32 scales, table;

    __device__ __forceinline__ void begin(u32 unit, u32 warp, u32 lane) {
        codes.begin(unit, warp, lane);
        scales = unit + Codes4::CodeBytes + (16 * warp + lane / 4) * 16;
    }
    __device__ __forceinline__ void batch(u32 (&a)[4][4], int b) {
        u32 c[4];
        codes.load(c, b);
        const u32 upper = load_4(scales + 4 * b), lower = load_4(scales + 4 * b + 128);
#pragma unroll
        for (int s = 0; s < 4; ++s) {
            const u32 u = s < 2 ? low_twice(upper) : high_twice(upper);
            const u32 l = s < 2 ? low_twice(lower) : high_twice(lower);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                a[s][j] = times(load_4(__byte_perm(c[s], 0, 0x4440 + j) * 128 + table), j % 2 == 0 ? u : l);
            }
        }
    }
};
__device__ const float kIQ4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

template <>
struct Table<IQ4> {
    static constexpr int TableBytes = 256 * 128;

    static __device__ __forceinline__ void fill(u8* table, u32 thread, u32 threads) {
        for (u32 i = thread; i < 256; i += threads) {
            const u32 word = pack_pair(kIQ4[i % 16], kIQ4[i / 16]);
            for (int j = 0; j < 32; ++j) {
                reinterpret_cast<u32*>(table)[i * 32 + j] = word;
            }
        }
    }
    static __device__ __forceinline__ u32 of_lane(u32 table, u32 lane) { return table + lane * 4; }
};

}  // namespace sparrow_packed
