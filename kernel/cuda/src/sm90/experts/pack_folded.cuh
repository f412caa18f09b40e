// Packs the e2m1 weights of an expert into the tiles that folded.cuh describes. This runs once, when the weights are
// loaded. The order of the rows of gate and up, and of down, is defined in pack.cuh. Rows and columns beyond the
// matrix are zeros.
//
// A block of 128 rows by 128 columns has one scale, which is 2^6 below the largest scale inside the block. The scales
// inside the block differ by a factor of at most 2^14; kernel/fold.go checks this before packing.
//
// Block: 256 threads, one tile and one block of 128 columns, one row per thread.
// Bytes: the matrix is read once and written once.
#pragma once

#include "sm90/experts/folded.cuh"
#include "smxx/base.h"

namespace sparrow_experts {

// Moves eight consecutive 4-bit codes to the bit positions that folded.cuh describes.
__device__ __forceinline__ u32 spread_codes(u32 codes) {
    u32 out = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const u32 code = codes >> (4 * i) & 15;
        out |= (code & 7) << (4 * i) | code >> 3 << (i < 4 ? 8 * i + 7 : 8 * (i - 4) + 3);
    }
    return out;
}

// Bands: the matrix does not belong to an expert, and its scales are f32 [2 * tiles, blocks].
template <bool Bands>
__device__ __forceinline__ void pack_folded(const PackE2M1Args& args) {
    using Type = Stored<Folded>;
    constexpr i32 kGroup = 32, kLargest = 6;  // values per scale; the largest relative exponent
    __shared__ u32 largest[2];
    begin_after_previous();
    const i32 block = blockIdx.x, tile = blockIdx.y, r = threadIdx.x;
    const bool two = args.second != nullptr;
    const bool upper = two && r >= 128;
    const i64 row = two ? tile * 128 + r % 128 : tile * 256 + r;
    const u8* from = (upper ? args.second : args.first) + row * args.stride;
    const u8* scales = (upper ? args.second_scales : args.first_scales) + row * args.scale_stride;
    const i32 groups = row < args.rows ? min(4, args.columns / kGroup - 4 * block) : 0;
    if (r < 2) {
        largest[r] = kLargest + 1;  // a block's scale is then at least 2^-126
    }
    __syncthreads();
    u32 own[4] = {}, most = 0;
#pragma unroll
    for (i32 g = 0; g < 4; ++g) {
        if (g < groups) {
            own[g] = scales[4 * block + g];
            most = max(most, own[g]);
        }
    }
    atomicMax(&largest[r / 128], most);
    __syncthreads();
    const u32 base = largest[r / 128] - kLargest;
    const i64 at = static_cast<i64>(tile) * args.blocks + block;
    u8* piece = args.to + at * Type::TileBytes + r / 16 * Type::PieceBytes;
    const u32 line = r % 8, lower = r / 8 % 2;
#pragma unroll
    for (i32 g = 0; g < 4; ++g) {
        uint4 v = make_uint4(0, 0, 0, 0);
        u32 exponent = 0;
        if (g < groups) {
            v = *reinterpret_cast<const uint4*>(from + (4 * block + g) * 16);
            exponent = max(0, static_cast<i32>(own[g] - base) - kLeastExponent);
        }
        // The four values from column 4c and the four from column 16 + 4c form a lane's word.
        const u32 words[4] = {__byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632),
                              __byte_perm(v.y, v.w, 0x5410), __byte_perm(v.y, v.w, 0x7632)};
#pragma unroll
        for (u32 c = 0; c < 4; ++c) {
            u8* to = piece + g / 2 * 512 + (line * 4 + c) * 16 + g % 2 * 8 + lower * 4;
            *reinterpret_cast<u32*>(to) = spread_codes(words[c]);
        }
        piece[Type::CodeBytes + line * 8 + lower * 4 + g] = g < groups ? 8 * exponent : 8 * -kLeastExponent;
    }
    if (r % 128 == 0) {
        float* to = reinterpret_cast<float*>(args.scales_to);
        to += Bands ? (static_cast<i64>(2 * tile) + r / 128) * args.blocks + block : 2 * at + r / 128;
        *to = __uint_as_float(base << 23);
    }
}

}  // namespace sparrow_experts
