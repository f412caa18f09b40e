// Packed formats: the layout of the values of a unit in memory, and how a lane converts its values to bf16. A new
// format needs a struct here, a kernel that packs it (pack.cuh) and files of instantiations (sm90, sm80).
//
// A unit is 64 rows by K columns: codes, then scales. Warp w of the warpgroup has rows 16w to 16w+15. In step s (16
// columns), lane l of the warp has eight values, from rows 16w + l/4 and 16w + l/4 + 8, and columns 16s + 2(l%4), the
// next column, and the two columns 8 further. Word a[0] holds the upper row and a[1] the lower row; a[2] and a[3] hold
// these rows 8 columns further. Four steps are a batch.
//
// Turned formats have another order of columns: lane l has columns 16(l%4) to 16(l%4)+15 of a batch, four per step;
// a[0] and a[1] take two of them, a[2] and a[3] the other two. A lane therefore needs only one scale per row and
// batch. The columns of the tokens must have the same order.
//
//   4 bits  [warp][batch][lane][step of the batch] words. a[j] is in bits 4j (low half) and 16+4j (high half); e2m1
//           has a different order (pack.cuh)
//   8 bits  [warp][batch][half of the batch][lane][step][2] words. a[2h] is in bytes 0 and 2 of word h, a[2h+1] in
//           bytes 1 and 3
//
// Integers are used directly as bits of bf16: an integer n of up to 8 bits is n * 2^-133, which is subnormal or, with
// its highest bit set, the smallest normal range. The stored scales contain the inverse power of two.
//
// Values are rounded to bf16 once if a code times its scale has more than 8 bits (int4 and int8 groups, FP8 with
// scales that are not powers of two, GGUF types). Other engines that convert weights to bf16 do the same. NVFP4, MXFP4
// and FP8 with power-of-two scales are exact in bf16. Scales in decode_any.cuh multiply float32 sums of a group, and a
// scale of the whole matrix multiplies the final sums.
#pragma once

#include "ptx/types.h"

namespace sparrow_packed {

// The lookup table in shared memory that a format needs (decode_lattice.cuh).
template <class F>
struct Table {
    static constexpr int TableBytes = 0;

    static __device__ __forceinline__ void fill(u8*, u32, u32) {}
    static __device__ __forceinline__ u32 of_lane(u32, u32) { return 0; }
};

// Reports whether a format has scales that multiply sums of groups instead of values (decode_any.cuh).
template <class F>
constexpr bool scales_sums() {
    return false;
}

// Multiplies sums of 16 rows by a factor for the upper eight and another for the lower eight.
template <int Count, int N>
__device__ __forceinline__ void scale_sums(float (&sum)[N], float2 by) {
    static_assert(Count <= N && Count % 4 == 0, "sums of both rows of a lane");
#pragma unroll
    for (int i = 0; i < Count; ++i) {
        sum[i] = __fmul_rn(sum[i], i % 4 < 2 ? by.x : by.y);
    }
}

// Returns the decoder state of a format for a unit.
template <class F>
__device__ __forceinline__ F unit_of(u32 unit, u32 table, u32 warp, u32 lane) {
    F format;
    if constexpr (Table<F>::TableBytes > 0) {
        format.table = table;
    }
    format.begin(unit, warp, lane);
    return format;
}

__device__ __forceinline__ uint4 load_16(u32 address) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address));
    return v;
}
__device__ __forceinline__ uint2 load_8(u32 address) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address));
    return v;
}
__device__ __forceinline__ u32 load_4(u32 address) {
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address));
    return v;
}
__device__ __forceinline__ u32 load_2(u32 address) {
    u16 v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(address));
    return v;
}
__device__ __forceinline__ u32 load_1(u32 address) {
    u32 v;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(address));
    return v;
}

// Products and sums of pairs of bf16, rounded to nearest even. Before Hopper, fma is the only such instruction; a
// product plus -0 and a difference as a product by -1 have the same bits.
__device__ __forceinline__ u32 times_plus(u32 a, u32 b, u32 c) {
    u32 r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ u32 times(u32 a, u32 b) {
    u32 r;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
__device__ __forceinline__ u32 minus(u32 a, u32 b) {
    u32 r;
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
#else
__device__ __forceinline__ u32 times(u32 a, u32 b) { return times_plus(a, b, 0x80008000u); }
__device__ __forceinline__ u32 minus(u32 a, u32 b) { return times_plus(b, 0xBF80BF80u, a); }
#endif
// Return one half of a pair in both halves of a word. They use 16-bit registers instead of a byte permutation, because
// a multiplication can select half of a register without a further instruction.
__device__ __forceinline__ u32 low_twice(u32 v) {
    u32 r;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {l, l}; }" : "=r"(r) : "r"(v));
    return r;
}
__device__ __forceinline__ u32 high_twice(u32 v) {
    u32 r;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, h}; }" : "=r"(r) : "r"(v));
    return r;
}

// Returns 2^e as bf16 in both halves of a word.
constexpr u32 power(int e) { return static_cast<u32>(e + 127) * 0x00800080u; }

// Shifts left by n, or right by -n if n is negative.
template <int n>
__device__ __forceinline__ u32 shifted(u32 v) {
    return n >= 0 ? v << (n >= 0 ? n : 0) : v >> (n < 0 ? -n : 0);
}

// Moves a bit of each half of v from bit position `from` to bit position `to`.
__device__ __forceinline__ u32 moved(u32 v, int from, int to) {
    return from >= to ? v >> (from >= to ? from - to : 0) : v << (from < to ? to - from : 0);
}

// Extracts pair j of e2m1 codes, times 2^-126: the sign moves to bit 15, the other three bits to bits 6 to 8 of a half.
// Three of the four pairs of a word are stored so that one rotation moves all their bits into position, and the last
// so that two shifts do (e2m1_bits in pack.cuh).
template <int j>
__device__ __forceinline__ u32 e2m1_pair(u32 codes) {
    constexpr u32 kMask = 0x81C081C0u;
    if constexpr (j == 0) {
        return codes & kMask;
    } else if constexpr (j == 1) {
        return __funnelshift_r(codes, codes, 4) & kMask;
    } else if constexpr (j == 2) {
        return codes << 6 & kMask;
    } else {
        return (codes << 2 & 0x80C080C0u) | (codes >> 6 & 0x01000100u);
    }
}

// Extracts pair j of 4-bit integers: pairs 0 and 2 times 2^-133, pairs 1 and 3 times 2^-129.
template <int j>
__device__ __forceinline__ u32 u4_pair(u32 codes) {
    return (j < 2 ? codes : codes >> 8) & (j % 2 == 0 ? 0x000F000Fu : 0x00F000F0u);
}

// The 4-bit codes of a lane, as it loads them from a unit of K columns.
template <int K>
struct Nibbles {
    static constexpr int CodeBytes = 64 * K / 2;
    u32 at;

    __device__ __forceinline__ void begin(u32 unit, u32 warp, u32 lane) { at = unit + warp * (8 * K) + lane * 16; }
    __device__ __forceinline__ void load(u32 (&c)[4], int batch) const {
        const uint4 v = load_16(at + batch * 512);
        c[0] = v.x, c[1] = v.y, c[2] = v.z, c[3] = v.w;
    }
};
using Codes4 = Nibbles<256>;

// NVFP4: e2m1 times an e4m3 scale per 16 values; exact in bf16. Sums are the true sums times 2^-Exponent. A stored
// scale has five bits of exponent, kBias too large, and three bits of fraction: the smallest e4m3 numbers are normal
// numbers too, and a product by 16 and a sum give bf16. If a scale is zero, its codes are stored as zeros.
struct Nvfp4 {
    static constexpr bool Turned = false;
    static constexpr int K = 256, Exponent = 10, kBias = 10;
    static constexpr int Bytes = Codes4::CodeBytes + 64 * 16;  // scales: [row][16]

    Codes4 codes;
    u32 scales;

    __device__ __forceinline__ void begin(u32 unit, u32 warp, u32 lane) {
        codes.begin(unit, warp, lane);
        scales = unit + Codes4::CodeBytes + (16 * warp + lane / 4) * 16;
    }
    // Widens the scales of four steps from four bytes, two at a time.
    static __device__ __forceinline__ void widen(u32 (&out)[4], u32 v) {
        constexpr u32 kMore = (126 - Exponent + 127 - kBias) * 0x00800080u;
        const u32 even = (v & 0x00FF00FFu) * 16 + kMore, odd = __byte_perm(v, 0, 0x4341) * 16 + kMore;
        out[0] = low_twice(even), out[1] = low_twice(odd), out[2] = high_twice(even), out[3] = high_twice(odd);
    }
    __device__ __forceinline__ void batch(u32 (&a)[4][4], int b) {
        u32 c[4], u[4], l[4];
        codes.load(c, b);
        widen(u, load_4(scales + 4 * b));
        widen(l, load_4(scales + 4 * b + 128));
#pragma unroll
        for (int s = 0; s < 4; ++s) {
            a[s][0] = times(e2m1_pair<0>(c[s]), u[s]);
            a[s][1] = times(e2m1_pair<1>(c[s]), l[s]);
            a[s][2] = times(e2m1_pair<2>(c[s]), u[s]);
            a[s][3] = times(e2m1_pair<3>(c[s]), l[s]);
        }
    }
};

// MXFP4: e2m1 times a power of two per 32 values. A stored scale is the exponent field of the bf16 number scale *
// 2^(126 - Exponent).
struct Mxfp4 {
    static constexpr bool Turned = false;
    static constexpr int K = 256, Exponent = 40;
    static constexpr int Bytes = Codes4::CodeBytes + 64 * 8;  // scales: [row][8] exponent fields

    Codes4 codes;
    u32 scales;

    __device__ __forceinline__ void begin(u32 unit, u32 warp, u32 lane) {
        codes.begin(unit, warp, lane);
        scales = unit + Codes4::CodeBytes + (16 * warp + lane / 4) * 8;
    }
    __device__ __forceinline__ void batch(u32 (&a)[4][4], int b) {
        u32 c[4];
        codes.load(c, b);
        const u32 upper = __byte_perm(load_2(scales + 2 * b), 0, 0x4140) << 7,
                  lower = __byte_perm(load_2(scales + 2 * b + 64), 0, 0x4140) << 7;
#pragma unroll
        for (int s = 0; s < 4; ++s) {
            const u32 u = s < 2 ? low_twice(upper) : high_twice(upper);
            const u32 l = s < 2 ? low_twice(lower) : high_twice(lower);
            a[s][0] = times(e2m1_pair<0>(c[s]), u);
            a[s][1] = times(e2m1_pair<1>(c[s]), l);
            a[s][2] = times(e2m1_pair<2>(c[s]), u);
            a[s][3] = times(e2m1_pair<3>(c[s]), l);
        }
    }
};

// The scales of the groups of one row, as bf16: Groups of them per 128 columns. With General, each scale is the sum of
// two bf16 numbers and has a zero point.
template <int Groups, bool General, int K>
struct GroupScales {
    static constexpr int Each = Groups * K / 128;  // scales per row of a unit
    static constexpr int ScaleBytes = 64 * Each * (General ? 4 : 2);
    // [row][group] scales, then zero points in this order.
    static constexpr int Bytes = ScaleBytes + (General ? 64 * Each : 0);
    static constexpr int Steps = 8 / Groups < 4 ? 8 / Groups : 4;        // steps of a batch that share a scale
    u32 at, zeros;

    __device__ __forceinline__ void begin(u32 scales, u32 row) {
        at = scales + row * Each * (General ? 4 : 2);
        zeros = scales + ScaleBytes + row * Each;
    }
    // Loads the scale of a step for the row that is `below` rows further down: high, and with General also low.
    __device__ __forceinline__ void load(int step, int below, u32& high, u32& low) const {
        const int group = step * Groups / 8 + below * Each;
        if constexpr (General) {
            const u32 v = load_4(at + group * 4);
            high = low_twice(v), low = high_twice(v);
        } else {
            high = low_twice(load_2(at + group * 2)), low = 0;
        }
    }
    __device__ __forceinline__ u32 zero(int step, int below) const {
        return load_1(zeros + step * Groups / 8 + below * Each);
    }
    static __device__ __forceinline__ u32 scaled(u32 v, u32 high, u32 low) {
        return General ? times_plus(v, high, times(v, low)) : times(v, high);
    }
};

// 4-bit integers minus a zero point (8 if there is none), times the scale of a group. Scales are stored times 2^(133 -
// Exponent); the scales of the lower eight of a warp's 16 rows are stored times 2^(129 - Exponent).
template <int Groups, bool General>
struct U4 {
    static constexpr bool Turned = false;
    static constexpr int K = 256, Exponent = 30;
    using Scales = GroupScales<Groups, General, K>;
    static constexpr int Bytes = Codes4::CodeBytes + Scales::Bytes;

    Codes4 codes;
    Scales scales;

    __device__ __forceinline__ void begin(u32 unit, u32 warp, u32 lane) {
        codes.begin(unit, warp, lane);
        scales.begin(unit + Codes4::CodeBytes, 16 * warp + lane / 4);
    }
    // With General, zero is the zero point in the format of the codes. Without General, zero is the value of code 0.
    static __device__ __forceinline__ u32 value(u32 v, u32 high, u32 low, u32 zero) {
        return General ? Scales::scaled(minus(v, zero), high, low) : times_plus(v, high, zero);
    }
    __device__ __forceinline__ void batch(u32 (&a)[4][4], int b) {
        u32 c[4], uh = 0, ul = 0, lh = 0, ll = 0, uz = 0, lz = 0;
        codes.load(c, b);
#pragma unroll
        for (int s = 0; s < 4; ++s) {
            const int step = 4 * b + s;
            if (s % Scales::Steps == 0) {
                scales.load(step, 0, uh, ul);
                scales.load(step, 8, lh, ll);
                if constexpr (General) {
                    uz = scales.zero(step, 0) * 0x00010001u, lz = scales.zero(step, 8) * 0x00100010u;
                } else {  // -8 * 2^-133, and 16 times that
                    uz = times(uh, 0x80088008u), lz = times(lh, 0x80808080u);
                }
            }
            a[s][0] = value(u4_pair<0>(c[s]), uh, ul, uz);
            a[s][1] = value(u4_pair<1>(c[s]), lh, ll, lz);
            a[s][2] = value(u4_pair<2>(c[s]), uh, ul, uz);
            a[s][3] = value(u4_pair<3>(c[s]), lh, ll, lz);
        }
    }
};

// Codes of 8 bits.
struct Codes8 {
    static constexpr int CodeBytes = 64 * 128;
    u32 at;

    __device__ __forceinline__ void begin(u32 unit, u32 warp, u32 lane) { at = unit + warp * 2048 + lane * 16; }
    __device__ __forceinline__ void load(u32 (&c)[4][2], int batch) const {
        const uint4 v = load_16(at + batch * 1024), w = load_16(at + batch * 1024 + 512);
        c[0][0] = v.x, c[0][1] = v.y, c[1][0] = v.z, c[1][1] = v.w;
        c[2][0] = w.x, c[2][1] = w.y, c[3][0] = w.z, c[3][1] = w.w;
    }
};

// Extracts two 8-bit integers from bytes j and 2+j, times 2^-133.
template <int j>
__device__ __forceinline__ u32 u8_pair(u32 codes) {
    return j == 0 ? codes & 0x00FF00FFu : __byte_perm(codes, 0, 0x4341);
}

// 8-bit integers minus a zero point (128 if there is none), times the scale of a group. Scales are stored times
// 2^(133 - Exponent).
template <int Groups, bool General>
struct I8 {
    static constexpr bool Turned = false;
    static constexpr int K = 128, Exponent = 30;
    using Scales = GroupScales<Groups, General, K>;
    static constexpr int Bytes = Codes8::CodeBytes + Scales::Bytes;

    Codes8 codes;
    Scales scales;

    __device__ __forceinline__ void begin(u32 unit, u32 warp, u32 lane) {
        codes.begin(unit, warp, lane);
        scales.begin(unit + Codes8::CodeBytes, 16 * warp + lane / 4);
    }
    static __device__ __forceinline__ u32 value(u32 v, u32 high, u32 low, u32 zero) {
        return General ? Scales::scaled(minus(v, zero), high, low) : times_plus(v, high, zero);
    }
    __device__ __forceinline__ void batch(u32 (&a)[4][4], int b) {
        u32 c[4][2], uh = 0, ul = 0, lh = 0, ll = 0, uz = 0, lz = 0;
        codes.load(c, b);
#pragma unroll
        for (int s = 0; s < 4; ++s) {
            const int step = 4 * b + s;
            if (s % Scales::Steps == 0) {
                scales.load(step, 0, uh, ul);
                scales.load(step, 8, lh, ll);
                if constexpr (General) {
                    uz = scales.zero(step, 0) * 0x00010001u, lz = scales.zero(step, 8) * 0x00010001u;
                } else {  // -128 * 2^-133
                    uz = times(uh, 0x80808080u), lz = times(lh, 0x80808080u);
                }
            }
            a[s][0] = value(u8_pair<0>(c[s][0]), uh, ul, uz);
            a[s][1] = value(u8_pair<1>(c[s][0]), lh, ll, lz);
            a[s][2] = value(u8_pair<0>(c[s][1]), uh, ul, uz);
            a[s][3] = value(u8_pair<1>(c[s][1]), lh, ll, lz);
        }
    }
};

// Extracts two e4m3 codes from bytes j and 2+j; the result is their values times 2^-120.
template <int j>
__device__ __forceinline__ u32 e4m3_pair(u32 codes) {
    return (shifted<8 - 8 * j>(codes) & 0x80008000u) | (shifted<4 - 8 * j>(codes) & 0x07F007F0u);
}

// e4m3 codes times the scale of a group. Scales are stored times 2^(120 - Exponent).
template <int Groups, bool General>
struct E4m3 {
    static constexpr bool Turned = false;
    static constexpr int K = 128, Exponent = 20;
    using Scales = GroupScales<Groups, General, K>;
    static constexpr int Bytes = Codes8::CodeBytes + Scales::Bytes;

    Codes8 codes;
    Scales scales;

    __device__ __forceinline__ void begin(u32 unit, u32 warp, u32 lane) {
        codes.begin(unit, warp, lane);
        scales.begin(unit + Codes8::CodeBytes, 16 * warp + lane / 4);
    }
    __device__ __forceinline__ void batch(u32 (&a)[4][4], int b) {
        u32 c[4][2], uh = 0, ul = 0, lh = 0, ll = 0;
        codes.load(c, b);
#pragma unroll
        for (int s = 0; s < 4; ++s) {
            const int step = 4 * b + s;
            if (s % Scales::Steps == 0) {
                scales.load(step, 0, uh, ul);
                scales.load(step, 8, lh, ll);
            }
            a[s][0] = Scales::scaled(e4m3_pair<0>(c[s][0]), uh, ul);
            a[s][1] = Scales::scaled(e4m3_pair<1>(c[s][0]), lh, ll);
            a[s][2] = Scales::scaled(e4m3_pair<0>(c[s][1]), uh, ul);
            a[s][3] = Scales::scaled(e4m3_pair<1>(c[s][1]), lh, ll);
        }
    }
};

// Packs two floats as a pair of bf16, the first in the low half, and computes the rounding error.
__device__ __forceinline__ u32 pack_pair(float low, float high) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
__device__ __forceinline__ float low_float(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_float(u32 pair) { return __uint_as_float(pair & 0xFFFF0000u); }
__device__ __forceinline__ float half_float(u32 bits) {
    float f;
    asm("{ .reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h; }" : "=f"(f) : "r"(bits));
    return f;
}

// Q4_K: d * scale * code - dmin * least for groups of 32. d and dmin are f16, one per 256 values; scale and least are
// 6-bit integers. A row has 16 bytes: d, dmin, then for each half of four groups the lower four bits of four scales
// and of four leasts, then the upper two bits of both halves. Lanes 2r and 2r+1 compute the scales and leasts of row
// r, each as a pair of bf16, and pass them to the lanes that have the row.
//
// Q5_K (Five) stores the fifth bit of each code separately, in [warp][batch][lane] words: bit 4 * step + j belongs to
// the first value of a[j], and the bit 16 above it to the second value.
template <bool Five>
struct Q45K {
    static constexpr bool Turned = false;
    static constexpr int K = 256, Exponent = 30;
    using Codes = Nibbles<256>;
    static constexpr int FifthAt = Codes::CodeBytes + 64 * 16, Bytes = FifthAt + (Five ? 64 * 32 : 0);

    Codes codes;
    u32 fifth;
    // Of each group: scale for the codes of the row and least (negative) as a pair of bf16, times 2^-Exponent.
    u32 pair[4];
    u32 from;

    __device__ __forceinline__ void begin(u32 unit, u32 warp, u32 lane) {
        codes.begin(unit, warp, lane);
        from = lane / 4 * 2;
        fifth = unit + FifthAt + (warp * 128 + lane) * 4;
        const uint4 h = load_16(unit + Codes::CodeBytes + (16 * warp + lane / 2) * 16);
        const u32 low = lane % 2 ? h.z : h.y, high = lane % 2 ? h.w >> 16 : h.w;
        const float d = half_float(h.x & 0xFFFFu) * (lane < 16 || Five ? 0x1p103f : 0x1p99f),
                    dmin = half_float(h.x >> 16) * -0x1p-30f;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 s = (low >> (4 * i) & 15u) | (high >> (2 * i) & 3u) << 4;
            const u32 m = (low >> (16 + 4 * i) & 15u) | (high >> (8 + 2 * i) & 3u) << 4;
            pair[i] = pack_pair(d * static_cast<float>(s), dmin * static_cast<float>(m));
        }
    }
    template <int j>
    static __device__ __forceinline__ u32 value(u32 codes, u32 bits, int s, u32 scale, u32 least) {
        if constexpr (Five) {
            return times_plus((codes >> (4 * j) & 0x000F000Fu) | (moved(bits, 4 * s + j, 4) & 0x00100010u), scale,
                              least);
        } else {
            return times_plus(u4_pair<j>(codes), scale, least);
        }
    }
    __device__ __forceinline__ void batch(u32 (&a)[4][4], int b) {
        u32 c[4], bits = 0;
        codes.load(c, b);
        if constexpr (Five) {
            bits = load_4(fifth + b * 128);
        }
#pragma unroll
        for (int g = 0; g < 2; ++g) {
            const int group = 2 * b + g;
            const u32 source = from + group / 4;
            const u32 u = __shfl_sync(ptx::kFullMask, pair[group % 4], source),
                      l = __shfl_sync(ptx::kFullMask, pair[group % 4], source + 16);
            const u32 us = low_twice(u), um = high_twice(u), ls = low_twice(l), lm = high_twice(l);
#pragma unroll
            for (int s = 2 * g; s < 2 * g + 2; ++s) {
                a[s][0] = value<0>(c[s], bits, s, us, um);
                a[s][1] = value<1>(c[s], bits, s, ls, lm);
                a[s][2] = value<2>(c[s], bits, s, us, um);
                a[s][3] = value<3>(c[s], bits, s, ls, lm);
            }
        }
    }
};
using Q4K = Q45K<false>;
using Q5K = Q45K<true>;

// Q2_K: d * scale * code - dmin * least for groups of 16; scale and least have 4 bits. It is a turned format: a lane
// has one group of a row in each batch. The 2-bit codes are [warp][half of the unit][lane][batch][2] words. A word
// has two steps: a[j] of the first step is at bits 2j and 16+2j, and a[j] of the second step 8 bits above. The codes
// are therefore used times 2^(2j-133). Next are [row][4] words, one for each l%4, with the scales of their four
// groups 16 bits above the leasts. Last are, for each row, two pairs of bf16 whose sum is the pair (d, -dmin). d is
// times 2^(133 - Exponent) for the codes, of which those of the lower row are times four; the factor of the 4-bit
// numbers is 2^6.
struct Q2K {
    static constexpr bool Turned = true;
    static constexpr int K = 256, Exponent = 28;
    static constexpr int CodeBytes = 64 * 64;
    static constexpr int Bytes = CodeBytes + 64 * 24;

    u32 at;
    u32 scales[2], high[2], low[2];  // index 0: upper row, index 1: lower row
    uint4 codes;

    __device__ __forceinline__ void begin(u32 unit, u32 warp, u32 lane) {
        at = unit + warp * 1024 + lane * 16;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const u32 row = 16 * warp + lane / 4 + 8 * r;
            scales[r] = load_4(unit + CodeBytes + row * 16 + lane % 4 * 4);
            const uint2 both = load_8(unit + CodeBytes + 1024 + row * 8);
            high[r] = both.x, low[r] = both.y;
        }
    }
    // Returns scale and least of batch b's group of row r as a pair.
    __device__ __forceinline__ u32 pair(int r, int b) const {
        const u32 n = times((b < 2 ? scales[r] : scales[r] >> 8) & (b % 2 == 0 ? 0x000F000Fu : 0x00F000F0u),
                            power(b % 2 == 0 ? 127 : 123));  // times 2^-6
        return times_plus(n, high[r], times(n, low[r]));
    }
    __device__ __forceinline__ void batch(u32 (&a)[4][4], int b) {
        if (b % 2 == 0) {
            codes = load_16(at + b / 2 * 512);
        }
        // Scales of a[0] and a[1], and of a[2] and a[3], whose codes are 16 times larger.
        u32 first[2], second[2], least[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const u32 p = pair(r, b);
            first[r] = low_twice(p), least[r] = high_twice(p), second[r] = low_twice(times(p, power(-4)));
        }
#pragma unroll
        for (int s = 0; s < 4; ++s) {
            const u32 word = b % 2 == 0 ? (s < 2 ? codes.x : codes.y) : (s < 2 ? codes.z : codes.w);
            const u32 c = s % 2 == 0 ? word : word >> 8;
            a[s][0] = times_plus(c & 0x00030003u, first[0], least[0]);
            a[s][1] = times_plus(c & 0x000C000Cu, first[1], least[1]);
            a[s][2] = times_plus(c & 0x00300030u, second[0], least[0]);
            a[s][3] = times_plus(c & 0x00C000C0u, second[1], least[1]);
        }
    }
};

// The bf16 scales of a row for groups of 16: [row][16]. A batch of four steps has four groups.
struct Scales16 {
    static constexpr int Bytes = 64 * 32;
    u32 at;

    __device__ __forceinline__ void begin(u32 scales, u32 warp, u32 lane) {
        at = scales + (16 * warp + lane / 4) * 32;
    }
    // Loads the four scales of a batch, for the upper row or the lower row of the lane.
    __device__ __forceinline__ void load(u32 (&s)[4], int batch, bool lower) const {
        const uint2 v = load_8(at + batch * 8 + (lower ? 256 : 0));
        s[0] = low_twice(v.x), s[1] = high_twice(v.x), s[2] = low_twice(v.y), s[3] = high_twice(v.y);
    }
};

// Q6_K: scale * (code - 32) for groups of 16; the scale is rounded to bf16 when it is packed. The lower four bits of
// codes are stored like 4-bit codes. The upper two bits are stored in words as in Q2_K, but ordered
// [warp][batch][half of the batch][lane]. Scales are stored times 2^(133 - Exponent).
struct Q6K {
    static constexpr bool Turned = false;
    static constexpr int K = 256, Exponent = 30;
    static constexpr int UpperAt = Codes4::CodeBytes, ScalesAt = UpperAt + 64 * 64, Bytes = ScalesAt + Scales16::Bytes;

    Codes4 codes;
    Scales16 scales;
    u32 upper;

    __device__ __forceinline__ void begin(u32 unit, u32 warp, u32 lane) {
        codes.begin(unit, warp, lane);
        scales.begin(unit + ScalesAt, warp, lane);
        upper = unit + UpperAt + (warp * 256 + lane) * 4;
    }
    __device__ __forceinline__ void batch(u32 (&a)[4][4], int b) {
        u32 c[4], s[2][4];
        codes.load(c, b);
        scales.load(s[0], b, false);
        scales.load(s[1], b, true);
        const u32 two[2] = {load_4(upper + b * 256), load_4(upper + b * 256 + 128)};
#pragma unroll
        for (int step = 0; step < 4; ++step) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const u32 q = (c[step] >> (4 * j) & 0x000F000Fu) |
                              (moved(two[step / 2], 8 * (step % 2) + 2 * j, 4) & 0x00300030u);
                const u32 by = s[j % 2][step];
                a[step][j] = times_plus(q, by, times(by, 0x80208020u));  // -32 * 2^-133
            }
        }
    }
};

// Q3_K: scale * (code - 4) for groups of 16; the scale is rounded to bf16 when it is packed. It is a turned format: a
// lane has one group of a row in each batch. The 16 pairs of codes of a batch are in three words, at bits 0, 3, 6, 9
// and 12 of the halves; the last pair has bits 15 and 31 of the words. Codes of the upper row are used times 2^-133,
// codes of the lower row times 2^-130. A half of the unit has [lane][4] words, then [lane][2]: [warp][half][192]. Next
// are [row][4][batch] scales, one of four for each l%4, times 2^(133 - Exponent), of lower rows times 2^(130 -
// Exponent).
struct Q3K {
    static constexpr bool Turned = true;
    static constexpr int K = 256, Exponent = 30;
    static constexpr int ScalesAt = 64 * 96, Bytes = ScalesAt + Scales16::Bytes;
    // The pair at each position: the first eight are of the upper row.
    static constexpr u64 kPairAt = 0xF7E6D5CB4A329180ull;

    u32 at, after;
    uint2 scales[2];  // upper row and lower row
    u32 codes[6];

    __device__ __forceinline__ void begin(u32 unit, u32 warp, u32 lane) {
        at = unit + warp * 1536 + lane * 16;
        const u32 of_row = unit + ScalesAt + (16 * warp + lane / 4) * 32 + lane % 4 * 8;
        scales[0] = load_8(of_row), scales[1] = load_8(of_row + 256);
        after = unit + warp * 1536 + 512 + lane * 8;
    }
    __device__ __forceinline__ void batch(u32 (&a)[4][4], int b) {
        if (b % 2 == 0) {
            const uint4 v = load_16(at + b / 2 * 768);
            const uint2 w = load_8(after + b / 2 * 768);
            codes[0] = v.x, codes[1] = v.y, codes[2] = v.z, codes[3] = v.w, codes[4] = w.x, codes[5] = w.y;
        }
        constexpr u32 kUpper = 0x00070007u, kLower = 0x00380038u;
        const u32 c0 = codes[b % 2 * 3], c1 = codes[b % 2 * 3 + 1], c2 = codes[b % 2 * 3 + 2];
        const u32 d0 = c0 >> 6, d1 = c1 >> 6, d2 = c2 >> 6, e0 = c0 >> 12, e1 = c1 >> 9, e2 = c2 >> 12;
        const u32 last = (e0 & 0x00080008u) | (c1 >> 11 & 0x00100010u) | (c2 >> 10 & 0x00200020u);
        const u32 upper[8] = {c0 & kUpper, d0 & kUpper, e0 & kUpper, c1 & kUpper,
                              d1 & kUpper, c2 & kUpper, d2 & kUpper, e2 & kUpper};
        const u32 lower[8] = {c0 & kLower, d0 & kLower, c1 & kLower, d1 & kLower,
                              e1 & kLower, c2 & kLower, d2 & kLower, last};
        const u32 u = b < 2 ? scales[0].x : scales[0].y, l = b < 2 ? scales[1].x : scales[1].y;
        const u32 zu = times(u, 0x80048004u), zl = times(l, 0x80208020u);  // code 0: -4 * 2^-133, -32 * 2^-133
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            a[i / 2][i % 2 * 2] = times_plus(upper[i], of_batch(u, b), of_batch(zu, b));
            a[i / 2][i % 2 * 2 + 1] = times_plus(lower[i], of_batch(l, b), of_batch(zl, b));
        }
    }
    static __device__ __forceinline__ u32 of_batch(u32 pair, int b) {
        return b % 2 == 0 ? low_twice(pair) : high_twice(pair);
    }
};

}  // namespace sparrow_packed
