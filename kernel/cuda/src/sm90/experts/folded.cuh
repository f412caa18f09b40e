// Converts e2m1 weights to e4m3, if the scales inside a block of 128 rows by 128 columns differ by a factor of at most
// 2^14. A value times its scale is then exactly an e4m3 code times the scale of the block: e4m3 represents the values
// of e2m1, 0.5 to 6, times 2^-8 to 2^6. Except for this conversion, matrix products are those of e4m3 weights.
//
// A stored tile is 256 rows of 128 values, 17408 bytes, in sixteen pieces of 16 rows. A piece holds the values in the
// order in which the lanes of a warp hold the A operand of the tensor-core instruction (ptx::HeldProduct). Lane l has
// values of rows l/4 and l/4 + 8. Of every 32 columns it has the four from 4 (l%4) and the four from 16 + 4 (l%4).
//
//     codes    [2, 32] parts of 16 bytes. Part p of lane l has the columns from 64p and the columns from 64p + 32:
//              for each, one word with eight values of row l/4 and one word with eight values of row l/4 + 8. The
//              magnitudes of the first four values of a word are in its lower half, three bits in each nibble, and
//              their signs in bits 7, 15, 23 and 31. The other four values have their magnitudes in the upper half
//              and their signs in bits 3, 11, 19 and 27
//     scales   [8, 2] words. Byte g of words 2i and 2i + 1 is 8 (e + 8), where 2^e is the scale of columns from 32g
//              of rows i and i + 8, divided by the scale of the block. It is the offset of the eight magnitudes in
//              Incoming::codes
//
// With few tokens, tiles are loaded into the ring of stages, and the math warps widen them in registers. With many
// tokens, a separate warpgroup widens them into the stages (wide.cuh).
//
// Eight values take 7 instructions, because the byte permutation looks up four magnitudes at once.
#pragma once

#include "ptx/wgmma_half.cuh"
#include "sm90/experts/source.cuh"

namespace sparrow_experts {

constexpr int kLeastExponent = -8, kExponents = 15;

// Returns the e4m3 code of magnitude m of e2m1 times 2^e.
__device__ __forceinline__ u32 folded_code(i32 m, i32 e) {
    if (m == 0) {
        return 0;
    }
    const i32 half = m > 1 ? m % 2 : 0, exponent = (m > 1 ? m / 2 - 1 : -1) + e;  // (1 + half / 2) 2^exponent
    return exponent >= -6 ? (exponent + 7) * 8 + half * 4 : (2 + half) << (exponent + 9) >> 1;
}

// Selects four of eight bytes by the lower four nibbles of select. The highest bit of each nibble must be zero.
// Assembly is used because __byte_perm adds an instruction that clears this bit.
__device__ __forceinline__ u32 pick_bytes(uint2 bytes, u32 select) {
    u32 out;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(bytes.x), "r"(bytes.y), "r"(select));
    return out;
}

// Converts the eight e2m1 values of a word to eight e4m3 codes. codes: the e4m3 codes of the eight magnitudes.
__device__ __forceinline__ uint2 fold_word(u32 word, uint2 codes) {
    const u32 magnitudes = word & 0x77777777u;
    return make_uint2(pick_bytes(codes, magnitudes) | (word & 0x80808080u),
                      pick_bytes(codes, magnitudes >> 16) | (word << 4 & 0x80808080u));
}

__device__ __forceinline__ uint2 load_codes(u32 address) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
    return v;
}

// Reports whether one of a lane's scales is below 2^-5. The e4m3 codes of such a scale are subnormal and must be looked
// up in the table. Scale bytes are at most 8 * 14, so no sum carries into the next byte.
__device__ __forceinline__ bool small_scales(uint2 scales) {
    constexpr u32 kUp = (128 - 8 * (-5 - kLeastExponent)) * 0x01010101u;
    return ((scales.x + kUp) & (scales.y + kUp) & 0x80808080u) != 0x80808080u;
}

// Returns the e4m3 codes of the eight magnitudes for byte g of scales.
template <bool Small>
__device__ __forceinline__ uint2 magnitudes_of(u32 scales, int g, u32 codes) {
    const u32 at = pick_bytes(make_uint2(scales, 0), 0x4440 + g);
    if constexpr (Small) {
        return load_codes(codes + at);
    }
    return make_uint2(0x3C383000u - 0x40404000u + at * 0x01010100u, 0x4C484440u - 0x40404040u + at * 0x01010101u);
}

// Widens columns 32g to 32g + 31 of a lane's two rows to an A operand in registers.
template <bool Small>
__device__ __forceinline__ void widen_columns(u32 (&a)[4], uint4 part, uint2 scales, int g, u32 codes) {
    const uint2 upper = fold_word(g % 2 == 0 ? part.x : part.z, magnitudes_of<Small>(scales.x, g, codes));
    const uint2 lower = fold_word(g % 2 == 0 ? part.y : part.w, magnitudes_of<Small>(scales.y, g, codes));
    a[0] = upper.x;
    a[1] = lower.x;
    a[2] = upper.y;
    a[3] = lower.y;
}

// A lane's codes and scales of a stored piece of 16 rows.
struct Piece {
    uint4 parts[2];
    uint2 scales;

    __device__ __forceinline__ void load(u32 piece, u32 lane) {
        parts[0] = ptx::load_vector(piece + lane * 16);
        parts[1] = ptx::load_vector(piece + 512 + lane * 16);
        scales = load_codes(piece + Stored<Folded>::CodeBytes + lane / 4 * 8);
    }
};

}  // namespace sparrow_experts
