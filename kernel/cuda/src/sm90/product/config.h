// What the two product kernels share: types of operands, blocks and parts of k, and the rule of summation.
//
// Bits: k is cut into parts of whole blocks, as many as the weight's shape asks for, whatever the number of rows. A
// part's sum begins at zero and takes its blocks in order; parts are added in order. e4m3: the products of a block
// (four instructions) are summed by the tensor cores from zero, and the result times the two scales is added in
// float32. bf16: the tensor cores' own sum runs through the part. An element's bits therefore depend on its row, its
// column and the weight alone: not on the kernel, the tile or the other rows.
#pragma once

#include "ptx/async.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/copy.cuh"
#include "ptx/multicast.cuh"
#include "ptx/peer.cuh"
#include "ptx/warp.cuh"
#include "ptx/wgmma_product.cuh"
#include "sm90/product/args.h"

namespace sparrow_product {

constexpr int kBlockBytes = 128;  // of k in a row of an operand: one row of the swizzle
constexpr int kSteps = 4;         // instructions of a block
constexpr int kScaleRows = 128;   // weight rows that share a scale
constexpr int kMaxStages = 32;
constexpr u32 kSharedLimit = 232448;

struct E4m3 {
    using Pair = ptx::E4m3Pair;
    static constexpr bool Scaled = true;
    static constexpr int BlockColumns = 128;
};

struct Bf16 {
    using Pair = ptx::Bf16Pair;
    static constexpr bool Scaled = false;
    static constexpr int BlockColumns = 64;
};

// A place in a ring and the parity of its use there.
struct Cursor {
    u32 stage = 0, parity = 0;

    __device__ __forceinline__ void advance(u32 stages) {
        if (++stage == stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// Division of small numbers (below 2^22) by one that stays, without the long way of an integer division.
struct Divisor {
    i32 by;
    float inverse;

    __device__ __forceinline__ explicit Divisor(i32 n) : by(n), inverse(1.0f / static_cast<float>(n)) {}
    __device__ __forceinline__ i32 divide(i32 n) const {
        i32 q = __float2int_rz(__fmul_rn(static_cast<float>(n), inverse));  // off by one at most
        const i32 rest = n - q * by;
        q += rest >= by ? 1 : 0;
        q -= rest < 0 ? 1 : 0;
        return q;
    }
};

// Blocks of k that part `part` has.
struct Span {
    i32 begin, end;
};

__device__ __forceinline__ Span span_of(const ProductArgs& args, i32 part) {
    const i32 each = (args.blocks + args.parts - 1) / args.parts;
    return {part * each, min(args.blocks, (part + 1) * each)};
}

// Four products of a block. d is overwritten by the first unless the sum goes on.
template <class T, int N>
__device__ __forceinline__ void multiply_block(float (&d)[N / 2], u32 a, u32 b, bool go_on) {
    const u64 left = ptx::operand_128b(a), right = ptx::operand_128b(b);
    ptx::mma_pin(d);
    ptx::mma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
        ptx::Product<typename T::Pair, N>::run(d, left + 2 * step, right + 2 * step, step > 0 || go_on);
    }
    ptx::mma_commit();
}

// The scales of one row of blocks of the weight, 32 blocks at a time in the lanes of a warp, the next 32 on their way.
struct WeightScales {
    const float* row = nullptr;  // of the first block
    i32 count = 0;
    float now = 0, next = 0;

    __device__ __forceinline__ static float fetch(const float* row, i32 first, i32 count) {
        const i32 i = first + static_cast<i32>(threadIdx.x % 32);
        return i < count ? __ldg(row + i) : 0.0f;
    }

    // The first 32 were fetched before.
    __device__ __forceinline__ void begin(const float* scales, i32 blocks, float fetched) {
        row = scales;
        count = blocks;
        now = fetched;
        next = fetch(row, 32, count);
    }

    // The scale of block i; blocks are asked for in order.
    __device__ __forceinline__ float at(i32 i) {
        if (i % 32 == 0 && i > 0) {
            now = next;
            next = fetch(row, i + 32, count);
        }
        return __shfl_sync(ptx::kFullMask, now, i % 32);
    }
};

__device__ __forceinline__ void arrive_warp(u32 barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        ptx::barrier_arrive(barrier);
    }
}

// An arrival at a barrier of Threads threads of the block (ptx::group_sync) without waiting for the others.
template <int Number, int Threads>
__device__ __forceinline__ void group_arrive() {
    asm volatile("bar.arrive %0, %1;" ::"n"(Number), "n"(Threads) : "memory");
}

}  // namespace sparrow_product
