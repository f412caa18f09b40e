// Common parts of the matrix product kernels: operand types, blocks of k, the ring of stages, and the matrix
// instructions of a block.
//
// Bits: a sum over k adds blocks of 128 bytes in order. For e4m3, the tensor cores sum a block (four instructions)
// from zero, and the result times the product of the two scales is added in float32. For bf16, the tensor cores
// accumulate over all blocks. Neither the number of columns of an instruction nor the order of its operands changes the
// bits; tests compare these cases.
#pragma once

#include "ptx/async.cuh"
#include "ptx/barrier.cuh"
#include "ptx/copy.cuh"
#include "ptx/multicast.cuh"
#include "ptx/warp.cuh"
#include "ptx/wgmma_product.cuh"

namespace sparrow_tile {

constexpr int kBlockBytes = 128;  // bytes of k per row of an operand in a stage: one row of the 128-byte swizzle
constexpr int kSteps = 4;         // matrix instructions per block of k
constexpr u32 kSharedLimit = 232448;

struct E4m3 {
    using Pair = ptx::E4m3Pair;
    static constexpr bool Scaled = true;
    static constexpr int Bytes = 1, BlockColumns = 128;
};

struct Bf16 {
    using Pair = ptx::Bf16Pair;
    static constexpr bool Scaled = false;
    static constexpr int Bytes = 2, BlockColumns = 64;
};

// A position in a ring of stages, and the parity of the current phase of the barriers of that stage.
struct Cursor {
    u32 stage = 0, parity = 0;

    __device__ __forceinline__ void advance(u32 stages) {
        if (++stage == stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// Issues the four matrix instructions of a block of k. The first one overwrites d unless go_on is set.
template <class T, int N>
__device__ __forceinline__ void multiply_block(float (&d)[N / 2], u64 left, u64 right, bool go_on) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
        ptx::Product<typename T::Pair, N>::run(d, left + 2 * step, right + 2 * step, step > 0 || go_on);
    }
}

// Reports whether the phase of a barrier with the given parity is complete, without waiting.
__device__ __forceinline__ bool barrier_test(u32 barrier, u32 parity) {
    u32 done;
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    return done != 0;
}

// Arrives once for a warp at a barrier, after the reads of all lanes of the warp.
__device__ __forceinline__ void arrive_warp(u32 barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        ptx::barrier_arrive(barrier);
    }
}

}  // namespace sparrow_tile
