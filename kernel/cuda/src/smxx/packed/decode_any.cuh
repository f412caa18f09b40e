// Packed 4-bit integers with any scales and zero points, in groups of 128 columns or more, as AWQ and GPTQ have them.
// The layout and terms are those of decode.cuh.
#pragma once

#include "smxx/packed/decode.cuh"

namespace sparrow_packed {

// 4-bit integers minus a zero point, times any scale, in groups of 128 columns or more. Scales are float32 numbers,
// with the powers of two of U4: [row][2] of them, one for each group, then [row][2] zero points.
struct U4Any {
    static constexpr bool Turned = false;
    static constexpr int K = 256, Exponent = 30, ScaleBytes = 64 * 2 * 4;
    static constexpr int Bytes = Codes4::CodeBytes + ScaleBytes + 64 * 2;

    Codes4 codes;
    uint2 upper, lower;  // scales of the lane's two rows
    // Zero points in the format of the codes, negative: of the first group in the low half, of the second in the high
    // half.
    u32 upper_zeros, lower_zeros;

    __device__ __forceinline__ void begin(u32 unit, u32 warp, u32 lane) {
        const u32 row = 16 * warp + lane / 4, scales = unit + Codes4::CodeBytes + row * 8;
        const u32 zeros = unit + Codes4::CodeBytes + ScaleBytes + row * 2;
        codes.begin(unit, warp, lane);
        upper = load_8(scales), lower = load_8(scales + 64);
        upper_zeros = __byte_perm(load_2(zeros), 0x80808080u, 0x4140);
        lower_zeros = __byte_perm(load_2(zeros + 16), 0, 0x4140) * 16 + 0x80008000u;
    }
};

// U4Any for the Hopper kernels. A scale is a power of two, possibly negative, times a fraction in [1, 2). An integer
// minus the zero point, times the power of two, is exact in bf16 and takes one instruction per pair. The fractions
// multiply the sums instead: in a group, a sum is the true sum divided by the fraction of the group.
struct U4OnSums : U4Any {
    u32 powers[2], least[2];  // power of two and value of code 0; index 0: upper row, index 1: lower row

    // Begins a group. fractions holds those of the group before, or 1 before the first group. Returns the factors by
    // which the sums of the upper and the lower rows must be multiplied.
    __device__ __forceinline__ float2 begin_group(int group, float2& fractions) {
        const u32 u = group == 0 ? upper.x : upper.y, l = group == 0 ? lower.x : lower.y;
        const u32 upper_power = u & 0xFF800000u, lower_power = l & 0xFF800000u;
        powers[0] = high_twice(upper_power), powers[1] = high_twice(lower_power);
        least[0] = times(group == 0 ? low_twice(upper_zeros) : high_twice(upper_zeros), powers[0]);
        least[1] = times(group == 0 ? low_twice(lower_zeros) : high_twice(lower_zeros), powers[1]);
        const float2 before = fractions;
        fractions = make_float2(fraction(u, upper_power), fraction(l, lower_power));
        return make_float2(__fmul_rn(before.x, reciprocal(fractions.x)), __fmul_rn(before.y, reciprocal(fractions.y)));
    }
    __device__ __forceinline__ void batch(u32 (&a)[4][4], int b) {
        u32 c[4];
        codes.load(c, b);
#pragma unroll
        for (int s = 0; s < 4; ++s) {
            a[s][0] = times_plus(u4_pair<0>(c[s]), powers[0], least[0]);
            a[s][1] = times_plus(u4_pair<1>(c[s]), powers[1], least[1]);
            a[s][2] = times_plus(u4_pair<2>(c[s]), powers[0], least[0]);
            a[s][3] = times_plus(u4_pair<3>(c[s]), powers[1], least[1]);
        }
    }
    // Returns a scale divided by its power of two: the bits of 1 in place of those of the power. The sum is one
    // instruction; the compiler would use two, a mask for the fraction and a mask for the bits of 1.
    static __device__ __forceinline__ float fraction(u32 scale, u32 power) {
        float r;
        asm("{ .reg .u32 t; sub.u32 t, %1, %2; add.u32 t, t, 0x3F800000; mov.b32 %0, t; }"
            : "=f"(r)
            : "r"(scale), "r"(power));
        return r;
    }
    static __device__ __forceinline__ float reciprocal(float v) {
        float r;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
        return r;
    }
};

template <>
constexpr bool scales_sums<U4OnSums>() {
    return true;
}

// U4Any for the portable kernels, which multiply values by whole scales and round them to bf16.
struct U4OnValues : U4Any {
    // Returns the value of a pair of codes minus the zero point.
    static __device__ __forceinline__ u32 value(u32 v, u32 high, u32 low, u32 zero) {
        const u32 n = times_plus(v, power(0), zero);
        return times_plus(n, high, times(n, low));
    }
    // Splits a scale into two bf16 numbers, each in both halves of a word.
    static __device__ __forceinline__ void split(u32 scale, u32& high, u32& low) {
        const float rest = __fsub_rn(__uint_as_float(scale), high_float(scale));
        high = high_twice(scale), low = pack_pair(rest, rest);
    }
    __device__ __forceinline__ void batch(u32 (&a)[4][4], int b) {
        u32 c[4], uh, ul, lh, ll;
        codes.load(c, b);
        split(b < 2 ? upper.x : upper.y, uh, ul);
        split(b < 2 ? lower.x : lower.y, lh, ll);
        const u32 uz = b < 2 ? low_twice(upper_zeros) : high_twice(upper_zeros);
        const u32 lz = b < 2 ? low_twice(lower_zeros) : high_twice(lower_zeros);
#pragma unroll
        for (int s = 0; s < 4; ++s) {
            a[s][0] = value(u4_pair<0>(c[s]), uh, ul, uz);
            a[s][1] = value(u4_pair<1>(c[s]), lh, ll, lz);
            a[s][2] = value(u4_pair<2>(c[s]), uh, ul, uz);
            a[s][3] = value(u4_pair<3>(c[s]), lh, ll, lz);
        }
    }
};

}  // namespace sparrow_packed
