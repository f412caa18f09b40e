// Packs the e2m1 weights of an expert into the tiles that e2m1.cuh describes. This runs once, when the weights are
// loaded. The order of the rows of gate and up, and of down, is defined in pack.cuh. Rows and columns beyond the
// matrix are zeros with scale 1.
//
// Block: 256 threads, one tile and one block of 64 columns, one row per thread.
// Bytes: the matrix is read once and written once.
#pragma once

#include "sm90/experts/config.h"
#include "smxx/base.h"

namespace sparrow_experts {

// Moves eight consecutive 4-bit codes to the bit positions from which they are widened: value 2i to bits 4i to 4i+3,
// value 2i+1 16 bits above value 2i.
__device__ __forceinline__ u32 spread_pairs(u32 codes) {
    u32 out = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        out |= (codes >> (8 * i) & 15) << (4 * i) | (codes >> (8 * i + 4) & 15) << (4 * i + 16);
    }
    return out;
}

__device__ __forceinline__ void pack_e2m1(const PackE2M1Args& args) {
    begin_after_previous();
    constexpr i32 kGroup = 32;  // values per scale, 16 bytes
    const i32 block = blockIdx.x, tile = blockIdx.y, r = threadIdx.x;
    const bool two = args.second != nullptr;
    const bool upper = two && r >= 128;
    const i64 row = two ? tile * 128 + r % 128 : tile * 256 + r;
    const u8* from = (upper ? args.second : args.first) + row * args.stride;
    const u8* scales = (upper ? args.second_scales : args.first_scales) + row * args.scale_stride;
    u8* to = args.to + (static_cast<i64>(tile) * args.blocks + block) * Stored<E2m1>::TileBytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const i32 group = 2 * block + half;
        const bool inside = row < args.rows && group * kGroup < args.columns;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (inside) {
            v = *reinterpret_cast<const uint4*>(from + group * 16);
            v = make_uint4(spread_pairs(v.x), spread_pairs(v.y), spread_pairs(v.z), spread_pairs(v.w));
        }
        const i32 j = r / 128 * 2 + half, t = r % 128;
        *reinterpret_cast<uint4*>(to + (j * 128 + t) * 16) = v;
        to[Stored<E2m1>::CodeBytes + 4 * t + j] = inside ? scales[group] : 127;
    }
}

}  // namespace sparrow_experts
