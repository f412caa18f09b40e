// Packs the e2m1 weights of an expert into the tiles that weights.cuh describes. This runs once, when the weights are
// loaded. The order of the rows of gate and up, and of down, is defined in sm90/experts/pack.cuh. Rows and columns
// beyond the matrix are zeros with scale 1.
//
// Block: 256 threads, one tile and one block of k, one row per thread.
// Bytes: the matrix is read once and written once.
#pragma once

#include "sm80/experts/weights.cuh"
#include "sm90/experts/args.h"
#include "smxx/base.h"

namespace portable {

// Moves eight consecutive 4-bit codes to the bit positions from which they are widened (weights.cuh).
__device__ __forceinline__ u32 spread_pairs(u32 codes) {
    u32 out = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        out |= (codes >> (8 * i) & 15) << (4 * i) | (codes >> (8 * i + 4) & 15) << (4 * i + 16);
    }
    return out;
}

// The codes and scales that thread r of a block reads: one weight row from column `first` on.
struct PackedRow {
    const u8 *codes, *scales;
    i32 groups;  // existing groups of 32 values from column `first` on
    i32 first;

    __device__ __forceinline__ PackedRow(const PackE2M1Args& args, i32 per_block) {
        const i32 tile = blockIdx.y, r = threadIdx.x;
        const bool two = args.second != nullptr, upper = two && r >= 128;
        const i64 row = two ? tile * 128 + r % 128 : tile * 256 + r;
        codes = (upper ? args.second : args.first) + row * args.stride;
        scales = (upper ? args.second_scales : args.first_scales) + row * args.scale_stride;
        first = blockIdx.x * per_block;
        groups = row < args.rows ? min(per_block, args.columns / 32 - first) : 0;
    }
    __device__ __forceinline__ uint4 group(i32 g) const {
        const uint4 v = *reinterpret_cast<const uint4*>(codes + (first + g) * 16);
        return make_uint4(spread_pairs(v.x), spread_pairs(v.y), spread_pairs(v.z), spread_pairs(v.w));
    }
};

__device__ __forceinline__ void pack_e2m1(const PackE2M1Args& args) {
    const PackedRow row(args, 2);
    const i32 r = threadIdx.x;
    u8* to = args.to + (static_cast<i64>(blockIdx.y) * args.blocks + blockIdx.x) * E2m1Weights::TileBytes;
#pragma unroll
    for (i32 g = 0; g < 2; ++g) {
        const bool inside = g < row.groups;
        *reinterpret_cast<uint4*>(to + r * 32 + g * 16) = inside ? row.group(g) : make_uint4(0, 0, 0, 0);
        to[E2m1Weights::CodeBytes + r * 2 + g] = inside ? row.scales[row.first + g] : 127;
    }
}

// A block of 128 rows by 128 columns has one scale, which is 2^6 below the largest scale inside the block. The scales
// inside the block differ by a factor of at most 2^14; kernel/fold.go checks this before packing.
__device__ __forceinline__ void pack_folded(const PackE2M1Args& args) {
    constexpr i32 kLargest = 6, kLeast = -8;  // range of a scale's exponent relative to the scale of its block
    __shared__ u32 largest[2];
    const PackedRow row(args, 4);
    const i32 r = threadIdx.x;
    if (r < 2) {
        largest[r] = kLargest + 1;  // a block's scale is then at least 2^-126
    }
    __syncthreads();
    u32 own[4] = {}, most = 0;
#pragma unroll
    for (i32 g = 0; g < 4; ++g) {
        if (g < row.groups) {
            own[g] = row.scales[row.first + g];
            most = max(most, own[g]);
        }
    }
    atomicMax(&largest[r / 128], most);
    __syncthreads();
    const u32 base = largest[r / 128] - kLargest;
    const i64 at = static_cast<i64>(blockIdx.y) * args.blocks + blockIdx.x;
    u8* to = args.to + at * FoldedWeights::TileBytes;
#pragma unroll
    for (i32 g = 0; g < 4; ++g) {
        const bool inside = g < row.groups;
        const i32 exponent = inside ? max(static_cast<i32>(own[g] - base), kLeast) : 0;
        *reinterpret_cast<uint4*>(to + r * 64 + g * 16) = inside ? row.group(g) : make_uint4(0, 0, 0, 0);
        to[FoldedWeights::CodeBytes + r * 4 + g] = static_cast<u8>(exponent + kFoldedExponent);
    }
    if (r % 128 == 0) {
        reinterpret_cast<float*>(args.scales_to + at)[r / 128] = __uint_as_float(base << 23);
    }
}

}  // namespace portable
