// Expert weights as a lane of the portable kernels holds them: its part of one weight row and one block of k, loaded
// directly from global memory. Tiles are 256 weight rows by one block of k (sm90/experts/pack.cuh). Tiles of e2m1
// have the order below, which pack_e2m1.cuh writes.
//
//     e2m1     [256 rows, 32 bytes] of 64 values, then [256, 2] bytes: scales 2^(byte - 127) for 32 values each; byte
//              255 is NaN. They are multiplied as bf16, which represents every value times its scale exactly.
//     folded   [256 rows, 64 bytes] of 128 values, then [256, 4] bytes: exponents of the halves that scale 32 values
//              each, relative to the scale of the block. They are multiplied as halves, like e4m3 codes.
//
// A word holds eight values: value 2i is in bits 4i to 4i+3, and value 2i+1 is 16 bits above it.
#pragma once

#include "sm80/codes.cuh"

namespace portable {

// Weights in the stored format of operand type T (bf16 or e4m3).
template <class T>
struct PlainWeights {
    using Type = T;
    static constexpr u32 TileBytes = 256 * kBlockBytes;
    uint4 piece[2];

    __device__ __forceinline__ void load(const u8* tile, u32 row, u32 quad) {
        piece[0] = __ldg(reinterpret_cast<const uint4*>(tile + swizzled(row, 2 * quad)));
        piece[1] = __ldg(reinterpret_cast<const uint4*>(tile + swizzled(row, 2 * quad + 1)));
    }
    __device__ __forceinline__ void words(int step, u32 (&b)[2]) const {
        T::words(piece[step / T::Steps], step % T::Steps, b[0], b[1]);
    }
    // numbers sets b to the widened weights of a step as words does, for weights in which nans has found no NaN.
    static constexpr bool MayBeNaN = T::Scaled;
    __device__ __forceinline__ void numbers(int step, u32 (&b)[2]) const {
        if constexpr (T::Scaled) {
            widen_numbers(word_of(piece[step / T::Steps], step % T::Steps), b[0], b[1]);
        } else {
            words(step, b);
        }
    }
    __device__ __forceinline__ u32 nans() const { return nans_of(piece[0]) | nans_of(piece[1]); }
};

struct E2m1Weights {
    using Type = Bf16;
    static constexpr u32 CodeBytes = 256 * 32, TileBytes = CodeBytes + 256 * 2;
    uint2 codes;
    u32 scale;  // scale as bf16, in both halves of the word

    __device__ __forceinline__ void load(const u8* tile, u32 row, u32 quad) {
        codes = __ldg(reinterpret_cast<const uint2*>(tile + row * 32 + quad * 8));
        const u32 byte = __ldg(tile + CodeBytes + row * 2 + quad / 2);
        const u32 bits = byte == 0 ? 0x0040u : byte == 255 ? 0x7FC0u : byte << 7;
        scale = bits | bits << 16;
    }
    // Returns a * b, computed as a * b + (-0), because adding -0 does not change the product.
    static __device__ __forceinline__ u32 times(u32 a, u32 b) {
        u32 r;
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0x80008000u));
        return r;
    }
    // Returns pair i of a word as bf16, times 2^-126: moves the sign to bit 15 and the other bits to the lowest
    // exponent bits and the highest fraction bits of bf16.
    __device__ __forceinline__ u32 pair(u32 word, int i) const {
        constexpr u32 kUp = 0x7E807E80u;  // 2^126 in both halves, as bf16
        const u32 at = word >> (4 * i);
        return times(times((at & 0x00070007u) << 6 | (at & 0x00080008u) << 12, kUp), scale);
    }
    static constexpr bool MayBeNaN = false;  // a NaN scale makes the widened words NaN
    __device__ __forceinline__ void numbers(int step, u32 (&b)[2]) const { words(step, b); }
    __device__ __forceinline__ void words(int step, u32 (&b)[2]) const {
        const u32 word = step < 2 ? codes.x : codes.y;
        b[0] = pair(word, 2 * (step % 2));
        b[1] = pair(word, 2 * (step % 2) + 1);
    }
};

struct FoldedWeights {
    using Type = Codes;
    static constexpr u32 CodeBytes = 256 * 64, TileBytes = CodeBytes + 256 * 4;
    uint4 codes;
    u32 scale;  // scale in half precision, in both halves of the word

    __device__ __forceinline__ void load(const u8* tile, u32 row, u32 quad) {
        codes = __ldg(reinterpret_cast<const uint4*>(tile + row * 64 + quad * 16));
        const u32 exponent = __ldg(tile + CodeBytes + row * 4 + quad);
        scale = exponent << 10 | exponent << 26;
    }
    // Returns pair i of a word as halves, times 2^-14.
    __device__ __forceinline__ u32 pair(u32 word, int i) const {
        const u32 at = word >> (4 * i);
        u32 r;
        asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"((at & 0x00070007u) << 9 | (at & 0x00080008u) << 12), "r"(scale));
        return r;
    }
    static constexpr bool MayBeNaN = false;  // no test is needed: folded weights and scales are finite
    __device__ __forceinline__ void numbers(int step, u32 (&b)[2]) const { words(step, b); }
    __device__ __forceinline__ void words(int step, u32 (&b)[2]) const {
        const u32 word = word_of(codes, step / 2);
        b[0] = pair(word, 2 * (step % 2));
        b[1] = pair(word, 2 * (step % 2) + 1);
    }
};
// Offset of the exponent byte of a scale of 2^e: the widened halves are their values times 2^-14, and e4m3 codes are
// widened to values times 2^-8 (mma.cuh).
constexpr i32 kFoldedExponent = 15 + 14 - 8;

}  // namespace portable
