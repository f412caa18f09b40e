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

__device__ __forceinline__ uint2 load_eight(u32 address) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
    return v;
}

// How scales are multiplied in half precision. One: there is no scale. Plain: scales from 2^-14 to 2^7, which are
// normal halves. Any: the scale has the factor 2^8, so that small scales have more bits, and the codes have the factor
// 2^-8.
enum class Scaling { One, Plain, Any };

// Converts eight codes times a scale, which is in both halves of the word `by`, to 16 bytes of a tile.
template <Scaling How>
__device__ __forceinline__ void store_codes(u32 to, uint2 codes, u32 by) {
    u32 v[4];
    widen_numbers(codes.x, v[0], v[1]);
    widen_numbers(codes.y, v[2], v[3]);
    if ((nans_of(make_uint4(codes.x, codes.y, 0, 0)) & kNaNs) != 0) {  // a code is a NaN, which is rare
        widen_codes(codes.x, v[0], v[1]);
        widen_codes(codes.y, v[2], v[3]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if constexpr (How == Scaling::Any && kCodeFactor == 1.0f) {
            v[i] = times_halves(v[i], 0x1C001C00u);  // 2^-8
        }
        if constexpr (How != Scaling::One) {
            v[i] = times_halves(v[i], by);
        } else if constexpr (kCodeFactor != 1.0f) {
            v[i] = times_halves(v[i], 0x5C005C00u);  // 2^8
        }
    }
    store_shared(to, make_uint4(v[0], v[1], v[2], v[3]));
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

// Converts group i of 64 codes of a row, of which this thread has `codes`, and stores it in the row of a tile at the
// address `to`. bits are those of the float32 scale of the group.
__device__ __forceinline__ void store_scaled(u32 to, u32 e, int i, uint2 codes, u32 bits) {
    const float up = __uint_as_float(bits) * 256.0f;
    store_codes<Scaling::Any>(to + 128 * i + 16 * e, codes, half_pair(up, up));
}
__device__ __forceinline__ u32 load_word(u32 address) {
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
    return v;
}
// Returns the float32 bits of the scale of group i of 64 codes, where four float32 scales follow 512 codes.
__device__ __forceinline__ u32 four_scales(u32 from, int i) { return load_word(from + 512 + i / 2 * 4); }
// Returns the float32 bits of a scale that is a power of two.
__device__ __forceinline__ u32 power_bits(u32 byte) {
    return byte == 0 ? 0x00400000u : byte == 255 ? 0x7FC00000u : byte << 23;
}

// Converts the codes of a row in place, for thread e of the row: groups of 64 codes from address `from` become 128
// bytes each from address `to`, of which a thread has 16. scale(i) returns the bits of the float32 scale of group i.
// The stored row ends where its place ends, so no thread overwrites groups that others have not read.
template <int Groups, Scaling How, class Scale>
__device__ __forceinline__ void convert_codes(u32 to, u32 from, u32 e, const Scale& scale) {
    // Groups between two waits. Shifts need registers for their constants.
    constexpr int kTurn = kCodeFactor == 1.0f ? 2 : 1;
    uint2 next[kTurn];
#pragma unroll
    for (int j = 0; j < kTurn; ++j) {
        next[j] = load_eight(from + 64 * j + 8 * e);
    }
#pragma unroll
    for (int i = 0; i < Groups; i += kTurn) {
        uint2 codes[kTurn];
#pragma unroll
        for (int j = 0; j < kTurn; ++j) {
            codes[j] = next[j];
            if (i + kTurn + j < Groups) {
                next[j] = load_eight(from + 64 * (i + kTurn + j) + 8 * e);
            }
        }
        __syncwarp();
#pragma unroll
        for (int j = 0; j < kTurn; ++j) {
            if (i + j < Groups) {
                const float up = __uint_as_float(scale(i + j)) * (How == Scaling::Any ? 256.0f : 1.0f);
                store_codes<How>(to + 128 * (i + j) + 16 * e, codes[j], half_pair(up, up));
            }
        }
    }
}

// Converts codes with scales as convert_codes does. Nearly all scales are plain, which saves a product per pair of
// codes where an instruction widens codes. The bits are those of Scaling::Any.
template <int Groups, class Scale>
__device__ __forceinline__ void convert_scaled(u32 to, u32 from, u32 e, const Scale& scale) {
    if constexpr (kCodeFactor == 1.0f) {
        u32 least = scale(0), most = least;
#pragma unroll
        for (int i = 1; i < Groups; ++i) {
            least = min(least, scale(i)), most = max(most, scale(i));
        }
        if (!__any_sync(ptx::kFullMask, least < 0x38800000u || most > 0x43000000u)) {
            convert_codes<Groups, Scaling::Plain>(to, from, e, scale);
            return;
        }
    }
    convert_codes<Groups, Scaling::Any>(to, from, e, scale);
}

// Converts 512 codes with a float32 scale per 128 codes.
__device__ __forceinline__ void convert_four_scales(u32 to, u32 from, u32 e, const uint4& scales) {
    convert_scaled<8>(to, from, e, [&](int i) { return word_of(scales, i / 2); });
}

// A row of 656 bytes: 512 codes, 4 float32 scales of 128 codes each, and 64 values of the rotary part, which are bf16
// in the tile too.
struct BlockRow {
    static constexpr int D = 576, HalfSteps = 32, kPieces = 41, kGroups = 8;
    static constexpr bool kHalves = true, kTwoStreams = false;
    static constexpr i64 kRowBytes = 656;

    static __device__ __forceinline__ void convert(u32 to, u32 from, u32 e) {
        const uint4 scales = load_shared(from + 512), rope = load_shared(from + 528 + 16 * e);
        __syncwarp();
        store_shared(to + 1024 + 16 * e, rope);  // over the scales
        convert_four_scales(to, from, e, scales);
    }
    static __device__ __forceinline__ void store_group(u32 to, u32 from, u32 e, int i, uint2 codes) {
        store_scaled(to, e, i, codes, four_scales(from, i));
    }
    static __device__ __forceinline__ void store_rope(u32 to, u32 from, u32 e) {
        store_shared(to + 1024 + 16 * e, load_shared(from + 528 + 16 * e));
    }
};

// A row of 576 bytes: 512 codes and 64 codes of the rotary part. The launch applies the scale of the pool.
struct RawRow {
    static constexpr int D = 576, HalfSteps = 36, kPieces = 36, kGroups = 9;
    static constexpr bool kHalves = true, kTwoStreams = false;
    static constexpr i64 kRowBytes = 576;

    static __device__ __forceinline__ void convert(u32 to, u32 from, u32 e) {
        convert_codes<9, Scaling::One>(to, from, e, [](int) { return 0u; });
    }
    static __device__ __forceinline__ void store_group(u32 to, u32, u32 e, int i, uint2 codes) {
        store_codes<Scaling::One>(to + 128 * i + 16 * e, codes, 0);
    }
    static __device__ __forceinline__ void store_rope(u32, u32, u32) {}
};

// A row of 584 bytes: 448 codes and 64 bf16 rotary values in a data row of 576 bytes, and 7 power-of-two scales of 64
// codes each in a scale row at the end of the page, which is copied behind the data row. The rotary part is also part
// of the values, so it is converted to half precision.
struct EntryRow {
    static constexpr int D = 512, HalfSteps = 32, kPieces = 36, kGroups = 7;
    static constexpr bool kHalves = true, kTwoStreams = true;
    static constexpr i64 kRowBytes = 576;

    static __device__ __forceinline__ void convert(u32 to, u32 from, u32 e) {
        const uint4 rope = load_shared(from + 448 + 16 * e), scales = load_shared(from + kRowBytes);
        convert_scaled<7>(to, from, e, [&](int i) {
            return power_bits((i < 4 ? scales.x >> (8 * i) : scales.y >> (8 * (i - 4))) & 255);
        });
        store_shared(to + 896 + 16 * e, halves_of_bf16(rope));
    }
    static __device__ __forceinline__ void store_group(u32 to, u32 from, u32 e, int i, uint2 codes) {
        store_scaled(to, e, i, codes, power_bits(load_word(from + kRowBytes + i / 4 * 4) >> (8 * (i % 4)) & 255));
    }
    static __device__ __forceinline__ void store_rope(u32 to, u32 from, u32 e) {
        store_shared(to + 896 + 16 * e, halves_of_bf16(load_shared(from + 448 + 16 * e)));
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
