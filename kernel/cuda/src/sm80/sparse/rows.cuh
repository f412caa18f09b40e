// Cache rows for portable sparse attention. Eight threads of a warp copy a row as it is stored to the end of the row's
// place in a tile, while scores are computed. They then convert it in place to 16-bit values.
//
// Rows of e4m3 codes are converted to half precision, which represents every code times a power of two from 2^-15 to
// 2^7. Rows of bf16 stay bf16.
#pragma once

#include "sm80/codes.cuh"
#include "sm90/sparse/args.h"
#include "smxx/num.cuh"

namespace portable {

// Converts to half precision. Numbers outside its range become its largest numbers; NaN stays NaN.
__device__ __forceinline__ u32 half_pair(float low, float high) {
    u32 r;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
__device__ __forceinline__ uint4 halves_of_bf16(uint4 v) {
    return make_uint4(half_pair(bf16_low(v.x), bf16_high(v.x)), half_pair(bf16_low(v.y), bf16_high(v.y)),
                      half_pair(bf16_low(v.z), bf16_high(v.z)), half_pair(bf16_low(v.w), bf16_high(v.w)));
}
__device__ __forceinline__ u32 times_halves(u32 a, u32 b) {
    u32 r;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

constexpr u32 kRowThreads = 8;  // threads that copy and convert a row

// Converts sixteen codes times a scale to 32 bytes of a tile. The widened codes have the factor 2^-8 and the
// half-precision scale the factor 2^8, so that small scales have more bits. Unit: the scale is 1. Half of the eight
// threads of a row store their upper 16 bytes first, because then they have no bank conflicts.
template <bool Unit = false>
__device__ __forceinline__ void store_codes(u32 to, uint4 codes, u32 scale, bool upper_first) {
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
    const uint4 low = make_uint4(v[0], v[1], v[2], v[3]), high = make_uint4(v[4], v[5], v[6], v[7]);
    store_shared(upper_first ? to + 16 : to, upper_first ? high : low);
    store_shared(upper_first ? to : to + 16, upper_first ? low : high);
}

// A row of `Columns` bf16 values.
template <int Columns>
struct Bf16Row {
    // D: columns; HalfSteps: products of 16 columns whose operands are halves; kPieces: 16-byte pieces of a stored row.
    static constexpr int D = Columns, HalfSteps = 0, kPieces = Columns / 8;
    static constexpr bool kHalves = false, kTwoStreams = false;
    static constexpr i64 kRowBytes = 2 * Columns;

    // Converts the row at address `from` to a row of the tile at `to`, for thread e of the row. The stored row ends
    // where the row of the tile ends, with its padding.
    static __device__ __forceinline__ void convert(u32, u32, u32) {}
};

// Converts the codes of a row in place, for thread e of the row: pieces of 16 codes from address `from` become 32 bytes
// each from address `to`. scale(i) is the scale of piece e + 8 i as store_codes takes it. The stored row ends where its
// place ends, so no thread overwrites pieces that others have not read.
template <int Pieces, bool Unit, class Scale>
__device__ __forceinline__ void convert_codes(u32 to, u32 from, u32 e, const Scale& scale) {
    constexpr int kTurns = (Pieces + kRowThreads - 1) / kRowThreads;
    uint4 next = load_shared(from + 16 * e);
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
        const uint4 codes = next;
        const u32 up = scale(i);
        if (kRowThreads * (i + 2) <= Pieces || i + 1 < kTurns && e + kRowThreads * (i + 1) < Pieces) {
            next = load_shared(from + 16 * (e + kRowThreads * (i + 1)));
        }
        __syncwarp();
        if (kRowThreads * (i + 1) <= Pieces || e + kRowThreads * i < Pieces) {
            // Without scales there are more turns, and no register for the order of the stores.
            store_codes<Unit>(to + 32 * (e + kRowThreads * i), codes, up, !Unit && e >= 4);
        }
    }
}

// Converts 512 codes with a float32 scale per 128 codes. The scales are behind the codes.
__device__ __forceinline__ void convert_scaled(u32 to, u32 from, u32 e) {
    const uint4 scales = load_shared(from + 512);
    convert_codes<32, false>(to, from, e, [&](int i) {
        const float up = __uint_as_float(word_of(scales, i)) * 256.0f;
        return half_pair(up, up);
    });
}

// A row of 656 bytes: 512 codes, 4 float32 scales of 128 codes each, and 64 values of the rotary part, which are bf16
// in the tile too.
struct BlockRow {
    static constexpr int D = 576, HalfSteps = 32, kPieces = 41;
    static constexpr bool kHalves = true, kTwoStreams = false;
    static constexpr i64 kRowBytes = 656;

    static __device__ __forceinline__ void convert(u32 to, u32 from, u32 e) {
        const uint4 rope = load_shared(from + 528 + 16 * e);
        convert_scaled(to, from, e);
        store_shared(to + 1024 + 16 * e, rope);
    }
};

// A row of 576 bytes: 512 codes and 64 codes of the rotary part. The launch applies the scale of the pool.
struct RawRow {
    static constexpr int D = 576, HalfSteps = 36, kPieces = 36;
    static constexpr bool kHalves = true, kTwoStreams = false;
    static constexpr i64 kRowBytes = 576;

    static __device__ __forceinline__ void convert(u32 to, u32 from, u32 e) {
        convert_codes<36, true>(to, from, e, [](int) { return 0x5C005C00u; });  // 2^8
    }
};

// A row of 584 bytes: 448 codes and 64 bf16 rotary values in a data row of 576 bytes, and 7 power-of-two scales of 64
// codes each in a scale row at the end of the page, which is copied behind the data row. The rotary part is also part
// of the values, so it is converted to half precision.
struct EntryRow {
    static constexpr int D = 512, HalfSteps = 32, kPieces = 36;
    static constexpr bool kHalves = true, kTwoStreams = true;
    static constexpr i64 kRowBytes = 576;

    static __device__ __forceinline__ void convert(u32 to, u32 from, u32 e) {
        const uint4 rope = load_shared(from + 448 + 16 * e), scales = load_shared(from + kRowBytes);
        convert_codes<28, false>(to, from, e, [&](int i) {
            const u32 g = e / 4 + 2 * i;  // group of 64 codes that share a scale
            const u32 byte = (i < 2 ? scales.x >> (8 * g) : scales.y >> (8 * (g - 4))) & 255;
            const u32 bits = byte == 0 ? 0x00400000u : byte == 255 ? 0x7FC00000u : byte << 23;
            const float up = __uint_as_float(bits) * 256.0f;
            return half_pair(up, up);
        });
        store_shared(to + 896 + 16 * e, halves_of_bf16(rope));
    }
};

// Copies 8 bytes as copy_16 copies 16.
__device__ __forceinline__ void copy_8(u32 dst, const void* src, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(dst), "l"(src), "r"(valid ? 8 : 0) : "memory");
}

// Bytes of a row's place in a tile: an odd number of 16-byte units, so that eight rows have no bank conflicts.
template <class Rows>
constexpr u32 kPitchOf = Rows::D * 2 + 16;

// The first byte of a stored row in its place. Rows of bf16 are not moved.
template <class Rows>
constexpr u32 kStoredAt = Rows::kHalves ? kPitchOf<Rows> - 16 * (Rows::kPieces + (Rows::kTwoStreams ? 1 : 0)) : 0;

// Copies a stored row to address `to`, for thread e of the row. If valid is false, writes zeros.
template <class Rows>
__device__ __forceinline__ void copy_row(u32 to, const u8* row, const u8* scale_row, u32 e, bool valid) {
#pragma unroll
    for (u32 i = 0; i < (Rows::kPieces + kRowThreads - 1) / kRowThreads; ++i) {
        if (kRowThreads * (i + 1) <= Rows::kPieces || e + kRowThreads * i < Rows::kPieces) {
            const u32 at = 16 * (e + kRowThreads * i);
            copy_16(to + at, row + at, valid);
        }
    }
    if (Rows::kTwoStreams && e == 0) {
        copy_8(to + Rows::kRowBytes, scale_row, valid);
    }
}

}  // namespace portable
