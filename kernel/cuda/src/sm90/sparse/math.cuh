// What the two math warpgroups have in common.
//
// The score group (score.cuh) multiplies queries by a block of keys, turns scores into weights, multiplies them, from
// its own registers, by columns 0-255 of the block and hands them to the value group (value.cuh) through shared
// memory, which does columns 256-511. The value group's product runs under the softmax of the next block.
//
// Bits: a unit's result depends on its row, its keys and their order alone; so does the sum over segments
//       (combine.cuh), because where a segment ends depends on nothing but the position.
#pragma once

#include "ptx/wgmma.cuh"
#include "sm90/sparse/output.cuh"

namespace sparrow_sparse {

// Exponents are relative to a number that follows the largest score only when that has outgrown it by this much, in
// base 2: the output is rescaled in few blocks, and weights reach 2^8 at most. What a row does depends on the row
// alone.
constexpr float kSlack = 8.0f;

// Multiplies the accumulator's two rows. Warps whose factors are all one leave it out, which changes no bit.
template <int N>
__device__ __forceinline__ void rescale(float (&o)[N], float f0, float f1) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        o[i] *= f0;
        o[i + 1] *= f0;
        o[i + 2] *= f1;
        o[i + 3] *= f1;
    }
}

// Declares accumulators whose first product overwrites them.
template <int N>
__device__ __forceinline__ void declare(float (&o)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
        asm volatile("" : "=f"(o[i]));
    }
}

// Asks for the products of tiles [From, To) of queries and keys, of which Rows says what they hold. Tile 0 overwrites
// the scores.
template <class Rows, int From, int To>
__device__ __forceinline__ void multiply_tiles(float (&s)[32], const u8* queries, const u8* keys) {
    const u64 q = ptx::operand_128b(ptx::shared_address(queries)), k = ptx::operand_128b(ptx::shared_address(keys));
#pragma unroll
    for (int i = From * 4; i < To * 4; ++i) {
        const u64 step = (i / 4 * kTileBytes + i % 4 * 32) / 16;
        if (i / 4 < Rows::Tiles - Rows::kBf16Tiles) {
            Rows::Type::multiply_64(s, q + step, k + step, i != 0);
        } else {
            ptx::Bf16::multiply_64(s, q + step, k + step, i != 0);
        }
    }
    ptx::mma_commit();
}

// A block's valid bits. One lane reads for its warp: its arrival then says that the word has been read.
__device__ __forceinline__ u64 valid_keys(const u64& valid) {
    u64 v = 0;
    if (threadIdx.x % 32 == 0) {
        v = read(valid);
    }
    return __shfl_sync(ptx::kFullMask, v, 0);
}

// One arrival per warp, after what all its lanes have read.
__device__ __forceinline__ void arrive(u64& barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        ptx::barrier_arrive(ptx::shared_address(&barrier));
    }
}

}  // namespace sparrow_sparse
