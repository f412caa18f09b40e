// Common parts of the matrix product kernels: parts of k, the order of summation, and scales of the weight.
//
// Bits: k is cut into parts of whole blocks. The number of parts depends on the shape of the weight and not on the
// number of rows. The sum of a part starts at zero and adds its blocks in order (tile.cuh); parts are added in order.
// The bits of an element therefore depend only on its row, its column and the weight, not on the kernel, the tile or
// the other rows.
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/peer.cuh"
#include "sm90/product/args.h"
#include "sm90/tile.cuh"

namespace sparrow_product {

using namespace sparrow_tile;

constexpr int kScaleRows = 128;  // weight rows per scale
constexpr int kMaxStages = 32;

// Division of small numbers (below 2^22) by a constant divisor, without the long instruction sequence of an integer
// division.
struct Divisor {
    i32 by;
    float inverse;

    __device__ __forceinline__ explicit Divisor(i32 n) : by(n), inverse(1.0f / static_cast<float>(n)) {}
    __device__ __forceinline__ i32 divide(i32 n) const {
        i32 q = __float2int_rz(__fmul_rn(static_cast<float>(n), inverse));  // at most 1 too small or too large
        const i32 rest = n - q * by;
        q += rest >= by ? 1 : 0;
        q -= rest < 0 ? 1 : 0;
        return q;
    }
};

// If args.beside is set, the previous kernel is another product of the same inputs. This kernel then reads the inputs
// without waiting for the previous kernel: they are complete, because the previous kernel waits for them before it
// allows this kernel to start. This kernel waits for the previous kernel before it ends, because the next kernel waits
// only for this kernel.
__device__ __forceinline__ void wait_for_inputs(const ProductArgs& args) {
    if (args.beside == 0) {
        ptx::wait_for_previous_kernel();
    }
}

__device__ __forceinline__ void end_after_previous(const ProductArgs& args) {
    if (args.beside != 0) {
        ptx::wait_for_previous_kernel();
    }
}

// The range of blocks of k in a part.
struct Span {
    i32 begin, end;
};

__device__ __forceinline__ Span span_of(const ProductArgs& args, i32 part) {
    const i32 each = (args.blocks + args.parts - 1) / args.parts;
    return {part * each, min(args.blocks, (part + 1) * each)};
}

// Issues the products of one block of k, with operands at addresses in shared memory, as one committed group.
template <class T, int N>
__device__ __forceinline__ void ask_block(float (&d)[N / 2], u32 left, u32 right, bool go_on) {
    ptx::mma_pin(d);
    ptx::mma_fence();
    multiply_block<T, N>(d, ptx::operand_128b(left), ptx::operand_128b(right), go_on);
    ptx::mma_commit();
}

// Returns the factors of result columns `column` (even) and column + 1. args.factors must not be null.
__device__ __forceinline__ float2 factors_of(const ProductArgs& args, i32 column) {
    return __ldg(reinterpret_cast<const float2*>(args.factors + min(column, args.columns - 2)));
}

// The weight scales of one row of 128 x 128 blocks. The lanes of a warp hold 32 scales at a time while the next 32 are
// being loaded.
struct WeightScales {
    const float* row = nullptr;  // address of the scale of the first block
    i32 count = 0;
    float now = 0, next = 0;

    __device__ __forceinline__ static float fetch(const float* row, i32 first, i32 count) {
        const i32 i = first + static_cast<i32>(threadIdx.x % 32);
        return i < count ? __ldg(row + i) : 0.0f;
    }

    // Starts a row of `blocks` scales. fetched: the first 32 scales, which have already been loaded, one per lane.
    __device__ __forceinline__ void begin(const float* scales, i32 blocks, float fetched) {
        row = scales;
        count = blocks;
        now = fetched;
        next = fetch(row, 32, count);
    }

    // Returns the scale of block i. Must be called in ascending order of i.
    __device__ __forceinline__ float at(i32 i) {
        if (i % 32 == 0 && i > 0) {
            now = next;
            next = fetch(row, i + 32, count);
        }
        return __shfl_sync(ptx::kFullMask, now, i % 32);
    }
};

}  // namespace sparrow_product
