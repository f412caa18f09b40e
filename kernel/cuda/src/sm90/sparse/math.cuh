// Common parts of the two math warpgroups.
//
// The score group (score.cuh) multiplies queries by a block of keys and converts the scores to weights. It multiplies
// the weights, from its registers, by columns 0-255 of the block and passes them through shared memory to the value
// group (value.cuh), which has columns 256-511. The product of the value group overlaps the softmax of the next
// block.
//
// Bits: The result of a unit depends only on its row, its keys and their order. The combine kernel's sum over segments
// also depends only on these, because the end of a segment depends only on the position.
#pragma once

#include "ptx/wgmma.cuh"
#include "sm90/sparse/narrow.cuh"
#include "sm90/sparse/output.cuh"

namespace sparrow_sparse {

// Exponents are relative to a base, which is raised to the largest score only when the score exceeds the base by more
// than kSlack, in base 2. The output is therefore rescaled in few blocks, and weights are at most 2^8. The decision for
// a row depends only on the row.
constexpr float kSlack = 8.0f;

// Multiplies accumulator rows row and row + 8 by f0 and f1. A warp whose factors are all one skips the multiplication,
// which does not change the bits.
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

// Declares accumulators as uninitialised registers, which the first product overwrites.
template <int N>
__device__ __forceinline__ void declare(float (&o)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
        asm volatile("" : "=f"(o[i]));
    }
}

// Issues the products of tiles [From, To) of queries and keys. Rows defines the type of the tiles. The product of tile
// 0 overwrites the scores; later products are added.
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

// Multiplies 16 keys of weights p, in registers or in shared memory, by 256 columns of values.
template <class Rows, class Weights>
__device__ __forceinline__ void multiply_values(float (&o)[128], const Weights& p, u64 v, i32 accumulate) {
    if constexpr (fetch_threads<Rows>() > kFetchers) {
        multiply_narrow<0>(o, p, v, accumulate);
        multiply_narrow<64>(o, p, v + 2 * kTileBytes / 16, accumulate);
    } else {
        Rows::Type::multiply_256(o, p, v, accumulate);
    }
}

// Returns the 64 valid bits of a block. One lane reads the word for its warp, so that the warp's arrival also marks the
// word as read.
__device__ __forceinline__ u64 valid_keys(const u64& valid) {
    u64 v = 0;
    if (threadIdx.x % 32 == 0) {
        v = read(valid);
    }
    return __shfl_sync(ptx::kFullMask, v, 0);
}

// Arrives once per warp at a barrier, after the reads of all lanes of the warp.
__device__ __forceinline__ void arrive(u64& barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        ptx::barrier_arrive(ptx::shared_address(&barrier));
    }
}

}  // namespace sparrow_sparse
