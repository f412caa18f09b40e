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
//   signs    [warp][lane][batch] words: the signs of the first four values of an octet at bit 2p of the four bytes,
//            and of the other values one bit above
//   scales   [row][8 or 16 numbers of 4 bits]: for groups of 32 or of 16 values
//   d        [row] pairs of bf16 whose sum is d times kEighths / 8 * 2^(139 - Exponent)
#pragma once

#include "smxx/packed/decode.cuh"
#include "smxx/packed/lattice.h"

namespace sparrow_packed {

// Returns a byte of a word times a number, plus another number, in one instruction.
template <u32 factor>
__device__ __forceinline__ u32 byte_times(u32 word, int byte, u32 plus) {
    return __dp4a(word, factor << (8 * byte), plus);
}

// Values are kEighths * d / 8 * (2s + 1) times a point. kPoints: points per octet. kUpper: there are more than 256
// points. kFine: a scale per 16 values instead of 32. kApart: bytes between points in the table.
template <int kPoints, int kEighths, bool kUpper, bool kFine, int kApart>
struct Lattice {
    static constexpr bool Turned = true;
    static constexpr int K = 256, Exponent = 30;
    static constexpr int Points = kPoints, Eighths = kEighths, Apart = kApart;
    static constexpr bool Upper = kUpper, Fine = kFine;
    static constexpr int UpperAt = 2048 * Points, SignsAt = UpperAt + (Upper ? 512 : 0), ScalesAt = SignsAt + 2048;
    static constexpr int ScaleBytes = Fine ? 8 : 4;  // bytes of scales per row
    static constexpr int PairAt = ScalesAt + 64 * ScaleBytes, Bytes = PairAt + 256;

    u32 table, upper, at, signs_at;
    u32 words[2 * Points], signs[2];  // indices and signs of a half of the unit
    // Scales of the upper row and the lower row, in pairs of batches: of a half of the unit if Fine, otherwise of the
    // first and the third, and of the second and the fourth.
    u32 scales[2][2];

    __device__ __forceinline__ void begin(u32 unit, u32 warp, u32 lane) {
        const u32 row = 16 * warp + lane / 4;
        at = unit + warp * Points * 512 + lane * 16;
        signs_at = unit + SignsAt + warp * 512 + lane * 16;
        upper = Upper ? load_4(unit + UpperAt + warp * 128 + lane * 4) : 0;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const u32 of_row = row + 8 * r;
            const u32 d = load_4(unit + PairAt + of_row * 4);
            u32 n[2];  // two scales each, from bit 1 and bit 17
            if constexpr (Fine) {
                const uint2 v = load_8(unit + ScalesAt + of_row * 8);
                n[0] = turned(v.x, lane % 4 * 4), n[1] = turned(v.y, lane % 4 * 4);
            } else {
                n[0] = turned(load_4(unit + ScalesAt + of_row * 4), lane % 4 / 2 * 4), n[1] = n[0] >> 8;
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const u32 odd = times((n[i] & 0x001E001Eu) | 0x00010001u, power(127));  // (2s + 1) * 2^-6
                scales[r][i] = times_plus(odd, low_twice(d), times(odd, high_twice(d)));
            }
        }
    }
    // Moves a scale that starts at the given bit to bit 1.
    static __device__ __forceinline__ u32 turned(u32 v, u32 bit) { return __funnelshift_r(v, v, bit - 1); }
    __device__ __forceinline__ void load_half(int half) {
        const uint2 v = load_8(signs_at + half * 8);
        signs[0] = v.x, signs[1] = v.y;
        if constexpr (Points == 2) {
            const uint4 w = load_16(at + half * 512);
            words[0] = w.x, words[1] = w.y, words[2] = w.z, words[3] = w.w;
        } else {
            const uint2 w = load_8(at + half * 8);
            words[0] = w.x, words[1] = w.y;
        }
    }
    __device__ __forceinline__ u32 scale(int batch, int r) const {
        const u32 pair = scales[r][Fine ? batch / 2 : batch % 2];
        return (Fine ? batch % 2 : batch / 2) == 0 ? low_twice(pair) : high_twice(pair);
    }
    // Returns values 2i and 2i + 1 of four, with their signs in bit 7 of the bytes of a word, times a scale.
    template <int i>
    static __device__ __forceinline__ u32 value(u32 magnitudes, u32 signs, u32 scale) {
        return times(__byte_perm(magnitudes, signs, i == 0 ? 0x5140 : 0x7362), scale);
    }
    // Returns the address of a point. The lower bits of its index are a byte of a word, and its upper bits are at
    // bits 8 and 9.
    __device__ __forceinline__ u32 point(u32 word, int byte, u32 upper) const {
        return Upper ? (__byte_perm(word, 0, 0x4440 + byte) | upper) * Apart + table
                     : byte_times<Apart>(word, byte, table);
    }
    __device__ __forceinline__ void batch(u32 (&a)[4][4], int b) {
        if (b % 2 == 0) {
            load_half(b / 2);
        }
        const u32 by[2] = {scale(b, 0), scale(b, 1)}, minus = signs[b % 2];
#pragma unroll
        for (int p = 0; p < 4; ++p) {
            const int g = p / 2, r = p % 2;
            const int bit = 8 * b + 2 * p;  // position of the octet's upper index bits, which move to bits 8 and 9
            const u32 two = bit < 8 ? upper << (8 - bit) : upper >> (bit - 8);
            uint2 v;
            if constexpr (Points == 2) {
                v.x = load_4(point(words[b % 2 * 2 + g], 2 * r, two & 0x100u));
                v.y = load_4(point(words[b % 2 * 2 + g], 2 * r + 1, two >> 1 & 0x100u));
            } else {
                v = load_8(point(words[b % 2], p, two & 0x300u));
            }
            const u32 first = minus << (7 - 2 * p) & 0x80808080u, second = minus << (6 - 2 * p) & 0x80808080u;
            a[2 * g][r] = value<0>(v.x, first, by[r]);
            a[2 * g][2 + r] = value<1>(v.x, first, by[r]);
            a[2 * g + 1][r] = value<0>(v.y, second, by[r]);
            a[2 * g + 1][2 + r] = value<1>(v.y, second, by[r]);
        }
    }
};
struct IQ2XXS : Lattice<1, 1, false, false, 128> {};
struct IQ2XS : Lattice<1, 1, true, true, 128> {};
struct IQ2S : Lattice<1, 1, true, true, 64> {};
struct IQ3XXS : Lattice<2, 2, false, false, 128> {};
struct IQ3S : Lattice<2, 8, true, false, 64> {};

// The table of a grid: the values of each point as bytes, repeated over Apart bytes.
template <class F, int Count, const u16* Grid>
struct PointTable {
    static constexpr int TableBytes = Count * F::Apart;
    static constexpr int kWords = 2 / F::Points;  // words per point

    // Returns four values of a point.
    static __device__ __forceinline__ u32 four(u32 point, u32 word) {
        u32 v = 0;
        for (int i = 0; i < 4; ++i) {
            u32 n;
            if constexpr (F::Points == 1) {
                const u32 code = point >> (8 * word + 2 * i) & 3;
                n = code == 0 ? 8 : code == 1 ? 25 : 43;
            } else {
                const u32 code = point >> (4 * i) & 7;
                n = F::Upper ? 1 + 2 * code : code == 7 ? 62 : 4 + 8 * code;
            }
            v |= n << (8 * i);
        }
        return v;
    }
    static __device__ __forceinline__ void fill(u8* table, u32 thread, u32 threads) {
        for (u32 i = thread; i < Count * kWords; i += threads) {
            const u32 word = four(Grid[i / kWords], i % kWords);
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
// kApart: bytes between pairs in the table.
template <int kApart>
struct Pairs16 {
    static constexpr bool Turned = false;
    static constexpr int K = 256, Exponent = 0, Apart = kApart;
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
                a[s][j] = times(load_4(byte_times<Apart>(c[s], j, table)), j % 2 == 0 ? u : l);
            }
        }
    }
};
struct IQ4 : Pairs16<128> {};
__device__ const float kIQ4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// The table of all pairs of the sixteen numbers, each repeated over Apart bytes.
template <class F>
struct PairTable {
    static constexpr int TableBytes = 256 * F::Apart;

    static __device__ __forceinline__ void fill(u8* table, u32 thread, u32 threads) {
        for (u32 i = thread; i < 256; i += threads) {
            const u32 word = pack_pair(kIQ4[i % 16], kIQ4[i / 16]);
            for (int j = 0; j < F::Apart / 4; ++j) {
                reinterpret_cast<u32*>(table)[i * (F::Apart / 4) + j] = word;
            }
        }
    }
    static __device__ __forceinline__ u32 of_lane(u32 table, u32 lane) { return table + lane * 4 % F::Apart; }
};
template <>
struct Table<IQ4> : PairTable<IQ4> {};

}  // namespace sparrow_packed
