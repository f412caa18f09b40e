// Cache rows for portable sparse attention. Sixteen threads load a row into registers while the previous block of keys
// is multiplied, and then write it to a tile of 16-bit values [32 keys][columns].
//
// Rows of e4m3 codes are converted to half precision, which represents every code times a power of two from 2^-15 to
// 2^7. Rows of bf16 stay bf16.
#pragma once

#include "sm80/codes.cuh"
#include "sm90/sparse/args.h"
#include "smxx/num.cuh"

namespace portable {

// Clamps x to the range of half precision. For a NaN, it returns a NaN.
__device__ __forceinline__ float within_half(float x) { return fabsf(x) > 65504.0f ? copysignf(65504.0f, x) : x; }
__device__ __forceinline__ u32 half_pair(float low, float high) {
    u32 r;
    low = within_half(low);
    high = within_half(high);
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
__device__ __forceinline__ uint4 halves_of_bf16(uint4 v) {
    return make_uint4(half_pair(bf16_low(v.x), bf16_high(v.x)), half_pair(bf16_low(v.y), bf16_high(v.y)),
                      half_pair(bf16_low(v.z), bf16_high(v.z)), half_pair(bf16_low(v.w), bf16_high(v.w)));
}
__device__ __forceinline__ void store_shared(u32 address, uint2 v) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(v.x), "r"(v.y) : "memory");
}
__device__ __forceinline__ u32 times_halves(u32 a, u32 b) {
    u32 r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

// Stores sixteen codes times a scale as 32 bytes of a tile. The widened codes have the factor 2^-8 and the
// half-precision scale the factor 2^8, so that small scales have more bits. Unit: the scale is 1.
template <bool Unit = false>
__device__ __forceinline__ void store_codes(u32 to, uint4 codes, u32 scale) {
    u32 v[8];
    widen_numbers(codes.x, v[0], v[1]);
    widen_numbers(codes.y, v[2], v[3]);
    widen_numbers(codes.z, v[4], v[5]);
    widen_numbers(codes.w, v[6], v[7]);
    if ((nans_of(codes) & kNaNs) != 0) {  // a code is a NaN, which is rare
        widen_codes(codes.x, v[0], v[1]);
        widen_codes(codes.y, v[2], v[3]);
        widen_codes(codes.z, v[4], v[5]);
        widen_codes(codes.w, v[6], v[7]);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        if (kCodeFactor == 1.0f && !Unit) {
            v[i] = times_halves(v[i], 0x1C001C00u);  // 2^-8
        }
        if (kCodeFactor != 1.0f || !Unit) {
            v[i] = times_halves(v[i], scale);
        }
    }
    store_shared(to, make_uint4(v[0], v[1], v[2], v[3]));
    store_shared(to + 16, make_uint4(v[4], v[5], v[6], v[7]));
}

// A row of `Columns` bf16 values.
template <int Columns>
struct Bf16Row {
    // D: columns; HalfSteps: products of 16 columns whose operands are halves.
    static constexpr int D = Columns, HalfSteps = 0;
    static constexpr bool kHalves = false, kTwoStreams = false;
    static constexpr i64 kRowBytes = 2 * Columns;
    static constexpr int kPieces = Columns / 8, kHeld = (kPieces + 15) / 16;
    uint4 held[kHeld];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
            held[i] = make_uint4(0, 0, 0, 0);
        }
    }
    __device__ __forceinline__ void load(const u8* row, const u8*, u32 e) {
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
            if (16 * (i + 1) <= kPieces || e + 16 * i < kPieces) {
                held[i] = __ldg(reinterpret_cast<const uint4*>(row) + e + 16 * i);
            }
        }
    }
    __device__ __forceinline__ void store(u32 to, u32 e) const {
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
            if (16 * (i + 1) <= kPieces || e + 16 * i < kPieces) {
                store_shared(to + 16 * (e + 16 * i), held[i]);
            }
        }
    }
};

// This thread's part of a row of 512 codes with a scale per 128 codes: pieces e and e + 16, of 16 codes each, and
// their scales.
struct ScaledCodes {
    uint4 codes[2];
    float scales[2];

    __device__ __forceinline__ void clear() {
        codes[0] = codes[1] = make_uint4(0, 0, 0, 0);
        scales[0] = scales[1] = 0.0f;
    }
    __device__ __forceinline__ void load(const u8* row, u32 e) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            codes[i] = __ldg(reinterpret_cast<const uint4*>(row) + e + 16 * i);
            scales[i] = __ldg(reinterpret_cast<const float*>(row + 512) + e / 8 + 2 * i);
        }
    }
    __device__ __forceinline__ void store(u32 to, u32 e) const {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float up = scales[i] * 256.0f;
            store_codes(to + 32 * (e + 16 * i), codes[i], half_pair(up, up));
        }
    }
};

// A row of 656 bytes: 512 codes, 4 float32 scales of 128 codes each, and 64 values of the rotary part, which are bf16
// in the tile too.
struct BlockRow {
    static constexpr int D = 576, HalfSteps = 32;
    static constexpr bool kHalves = true, kTwoStreams = false;
    static constexpr i64 kRowBytes = 656;
    ScaledCodes codes;
    uint2 rope;

    __device__ __forceinline__ void clear() {
        codes.clear();
        rope = make_uint2(0, 0);
    }
    __device__ __forceinline__ void load(const u8* row, const u8*, u32 e) {
        codes.load(row, e);
        rope = __ldg(reinterpret_cast<const uint2*>(row + 528) + e);
    }
    __device__ __forceinline__ void store(u32 to, u32 e) const {
        codes.store(to, e);
        store_shared(to + 1024 + 8 * e, rope);
    }
};

// A row of 576 bytes: 512 codes and 64 codes of the rotary part. The launch applies the scale of the pool.
struct RawRow {
    static constexpr int D = 576, HalfSteps = 36;
    static constexpr bool kHalves = true, kTwoStreams = false;
    static constexpr i64 kRowBytes = 576;
    uint4 codes[3];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < 3; ++i) {
            codes[i] = make_uint4(0, 0, 0, 0);
        }
    }
    __device__ __forceinline__ void load(const u8* row, const u8*, u32 e) {
#pragma unroll
        for (int i = 0; i < 3; ++i) {
            if (i < 2 || e < 4) {
                codes[i] = __ldg(reinterpret_cast<const uint4*>(row) + e + 16 * i);
            }
        }
    }
    __device__ __forceinline__ void store(u32 to, u32 e) const {
#pragma unroll
        for (int i = 0; i < 3; ++i) {
            if (i < 2 || e < 4) {
                store_codes<true>(to + 32 * (e + 16 * i), codes[i], 0x5C005C00u);  // 2^8
            }
        }
    }
};

// A row of 584 bytes: 448 codes and 64 bf16 rotary values in a data row of 576 bytes, and 7 power-of-two scales of 64
// codes each in a scale row at the end of the page. The rotary part is also part of the values, so it is converted to
// half precision.
struct EntryRow {
    static constexpr int D = 512, HalfSteps = 32;
    static constexpr bool kHalves = true, kTwoStreams = true;
    static constexpr i64 kRowBytes = 576;
    uint4 codes[2];
    uint2 rope;
    uint2 scales;

    __device__ __forceinline__ void clear() {
        codes[0] = codes[1] = make_uint4(0, 0, 0, 0);
        rope = scales = make_uint2(0, 0);
    }
    __device__ __forceinline__ void load(const u8* row, const u8* scale_row, u32 e) {
        codes[0] = __ldg(reinterpret_cast<const uint4*>(row) + e);
        if (e < 12) {
            codes[1] = __ldg(reinterpret_cast<const uint4*>(row) + e + 16);
        }
        rope = __ldg(reinterpret_cast<const uint2*>(row + 448) + e);
        scales = __ldg(reinterpret_cast<const uint2*>(scale_row));
    }
    __device__ __forceinline__ void store(u32 to, u32 e) const {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (i == 0 || e < 12) {
                const u32 g = e / 4 + 4 * i;  // group of 64 codes that share a scale
                const u32 byte = (i == 0 ? scales.x >> (8 * g) : scales.y >> (8 * (g - 4))) & 255;
                const u32 bits = byte == 0 ? 0x00400000u : byte == 255 ? 0x7FC00000u : byte << 23;
                const float up = __uint_as_float(bits) * 256.0f;
                store_codes(to + 32 * (e + 16 * i), codes[i], half_pair(up, up));
            }
        }
        store_shared(to + 896 + 8 * e, make_uint2(half_pair(bf16_low(rope.x), bf16_high(rope.x)),
                                                  half_pair(bf16_low(rope.y), bf16_high(rope.y))));
    }
};

}  // namespace portable
