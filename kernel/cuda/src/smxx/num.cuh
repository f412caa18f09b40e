// Number formats, bit for bit as package internal/num defines them: bf16, e4m3, power-of-two scales.
#pragma once
#include "smxx/base.h"

constexpr u32 kAbsMask = 0x7FFFFFFFu;
constexpr u32 kInfBits = 0x7F800000u;
constexpr f32 kMaxE4M3 = 448.0f;

// Returns the bits of f as bf16, rounded to nearest even. A NaN keeps its sign and upper payload bits and becomes
// quiet.
DEVICE u32 bf16_bits(f32 f) {
    u32 b = __float_as_uint(f);
    if ((b & kAbsMask) > kInfBits) return (b >> 16) | 0x40u;
    return (b + 0x7FFFu + ((b >> 16) & 1u)) >> 16;
}
DEVICE f32 round_bf16(f32 f) { return __uint_as_float(bf16_bits(f) << 16); }
DEVICE f32 bf16_low(u32 pair) { return __uint_as_float(pair << 16); }
DEVICE f32 bf16_high(u32 pair) { return __uint_as_float(pair & 0xFFFF0000u); }
DEVICE u32 pack_bf16(f32 low, f32 high) { return bf16_bits(low) | (bf16_bits(high) << 16); }

// Packs two floats as bf16, rounded to nearest even, for values that are not NaN or whose NaN payload is not needed.
// One instruction converts both.
DEVICE u32 pack_bf16_fast(f32 low, f32 high) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
DEVICE void round_bf16_fast(f32& a, f32& b) {
    u32 p = pack_bf16_fast(a, b);
    a = bf16_low(p);
    b = bf16_high(p);
}

// Returns the e4m3 code of a value: rounded to nearest even, saturating at 448, NaN to 0x7F with its sign. It is used
// for devices before sm_89, and PTX that targets them, which have no conversion instruction.
DEVICE u32 round_e4m3(f32 f) {
    u32 sign = (__float_as_uint(f) >> 24) & 0x80u, b = __float_as_uint(f) & kAbsMask;
    if (b > kInfBits) return sign | 0x7Fu;
    if (b < 0x3C800000u) { // below 2^-6, codes are multiples of 2^-9; a float near 2^14 is rounded to that unit
        return sign | (__float_as_uint(__fadd_rn(__uint_as_float(b), 16384.0f)) & 15u);
    }
    u32 rounded = (b + 0x7FFFFu + ((b >> 20) & 1u)) >> 20; // exponent biases differ by 120
    return sign | min(rounded - (120u << 3), 0x7Eu);
}
// Converts two values to e4m3 codes, with `low` in the lower byte. A NaN may lose its sign; in pack_e4m3 it does not.
DEVICE u32 pack_e4m3_fast(f32 low, f32 high) {
#if __CUDA_ARCH__ >= 890
    u16 r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
    return r;
#else
    return round_e4m3(low) | round_e4m3(high) << 8;
#endif
}
DEVICE u32 pack_e4m3(f32 low, f32 high) {
    u32 q = pack_e4m3_fast(low, high);
    if (low != low) q = (q & 0xFF00u) | 0x7Fu | ((__float_as_uint(low) >> 24) & 0x80u);
    if (high != high) q = (q & 0x00FFu) | ((0x7Fu | ((__float_as_uint(high) >> 24) & 0x80u)) << 8);
    return q;
}
DEVICE u32 pack_e4m3(f32 a, f32 b, f32 c, f32 d) { return pack_e4m3(a, b) | (pack_e4m3(c, d) << 16); }

// Converts four e4m3 codes to float32. This is exact, because e4m3 to half and half to float are exact.
DEVICE void unpack_e4m3(u32 codes, f32 out[4]) {
#if __CUDA_ARCH__ < 890
#pragma unroll
    for (int i = 0; i < 4; i++) { // exponent biases differ by 120; fractions of subnormal codes have no implicit one
        u32 c = codes >> (8 * i) & 0xFFu, sign = (c & 0x80u) << 24;
        f32 v = __fmul_rn(__uint_as_float((c & 0x7Fu) << 20), 0x1p120f);
        out[i] = __uint_as_float((c & 0x7Fu) == 0x7Fu ? sign | 0x7FC00000u : sign | __float_as_uint(v));
    }
#else
#pragma unroll
    for (int i = 0; i < 2; i++) {
        u32 halves;
        u16 pair = (u16)(codes >> (16 * i));
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
        asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
            : "=f"(out[2 * i]), "=f"(out[2 * i + 1])
            : "r"(halves));
    }
#endif
}

// Returns the magnitude as ordered bits, for the maximum of a block. NaN is ignored, and infinity counts as the
// largest finite value.
DEVICE u32 magnitude(f32 f) {
    u32 b = __float_as_uint(f) & kAbsMask;
    return b > kInfBits ? 0u : min(b, kInfBits - 1);
}

// Returns 2^ceil(log2 y) for y > 0, computed from its bits. The exponent is kept in the normal range.
DEVICE f32 ceil_pow2(f32 y) {
    u32 e = ((__float_as_uint(y) & kAbsMask) + 0x7FFFFFu) >> 23;
    return __uint_as_float(min(max(e, 1u), 254u) << 23);
}

// Returns the scale of a 128-value tile of a latent row.
DEVICE f32 latent_scale(u32 amax) { return ceil_pow2(fmaxf(__fdiv_rn(__uint_as_float(amax), kMaxE4M3), 1e-4f)); }

// Reports whether a scale is a positive normal power of two. Dividing by it then equals multiplying by its
// reciprocal.
DEVICE bool is_pow2(f32 scale) {
    u32 b = __float_as_uint(scale);
    return (b & 0x7FFFFFu) == 0 && b >= (1u << 23) && b < kInfBits;
}

// Returns the scale of an indexer vector: max(amax, 1e-4) / 448, rounded up to a power of two unless `exact`.
DEVICE f32 index_scale(f32 amax, bool exact) {
    f32 s = __fdiv_rn(fmaxf(amax, 1e-4f), kMaxE4M3);
    return exact ? s : ceil_pow2(s);
}

// Return v * factor and v / divisor, for scaling before quantisation. A NaN is returned unchanged, because arithmetic
// would lose its sign.
DEVICE f32 times(f32 v, f32 factor) { return v != v ? v : __fmul_rn(v, factor); }
DEVICE f32 over(f32 v, f32 divisor) { return v != v ? v : __fdiv_rn(v, divisor); }

// Rotates a pair. Each product and sum is rounded once, without contraction, so that every device gives the same
// bits.
DEVICE void rotate(f32& a, f32& b, f32 cosine, f32 sine) {
    f32 x = __fsub_rn(__fmul_rn(a, cosine), __fmul_rn(b, sine));
    f32 y = __fadd_rn(__fmul_rn(a, sine), __fmul_rn(b, cosine));
    a = x;
    b = y;
}
