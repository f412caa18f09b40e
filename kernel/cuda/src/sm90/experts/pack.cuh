// Packs the weights of an expert. This runs once, when they are loaded. A packed tile is what one stage of a matrix
// product reads, contiguous in memory: 256 rows of 128 bytes of k, swizzled (16-byte chunk c of row r is at chunk c ^
// (r % 8)). Tiles are ordered by block of k.
//
//     gate and up   rows 0-127 are gate and 128-255 are up, of the same 128 inner columns
//     down          256 rows in order
//
// Rows and columns beyond the matrix are zeros. Each tile and block has two float scales, one for each half of 128
// rows.
//
// Block: 256 threads, one tile and one block of k, one row per thread.
// Bytes: the matrix is read once and written once.
#pragma once

#include "sm90/experts/args.h"
#include "smxx/base.h"

namespace sparrow_experts {

__device__ __forceinline__ void pack(const PackExpertArgs& args) {
    begin_after_previous();
    const i32 block = blockIdx.x, tile = blockIdx.y, r = threadIdx.x;
    const bool two = args.second != nullptr;
    const bool upper = two && r >= 128;
    const i32 row = two ? tile * 128 + r % 128 : tile * 256 + r;
    const u8* from = (upper ? args.second : args.first) + row * args.stride + block * 128;
    u8* to = args.to + (static_cast<i64>(tile) * args.blocks + block) * 32768 + r * 128;
#pragma unroll
    for (int c = 0; c < 8; ++c) {
        uint4 v = make_uint4(0, 0, 0, 0);
        if (row < args.rows && block * 128 + c * 16 < args.row_bytes) {
            v = *reinterpret_cast<const uint4*>(from + c * 16);
        }
        *reinterpret_cast<uint4*>(to + ((c ^ (r & 7)) << 4)) = v;
    }
    if (args.scales_to != nullptr && r % 128 == 0) {
        const float* scales = upper ? args.second_scales : args.first_scales;
        const float v = row < args.rows ? scales[row / 128 * args.scale_stride + block] : 0.0f;
        reinterpret_cast<float*>(args.scales_to + static_cast<i64>(tile) * args.blocks + block)[r / 128] = v;
    }
}

}  // namespace sparrow_experts
