// Sparse attention over rows of bf16 values. Inputs and outputs are those of kernel.cuh, with one stream.
//
// Block: one per SM, four warpgroups. One holds six of the eight or nine query tiles of a unit in registers and
//        computes scores and softmax; two have half of the output columns each; one fetches. Keys and queries pass
//        through one ring in shared memory, in quarters. The queries and keys of the next unit therefore arrive while
//        the current ones are multiplied, and its scores start while the current output is written.
// Bytes: every selected row is read once per 64 heads.
// H200:  128 heads, top-k 2048: prefill 4096 x 8k / 32k / 128k 746 / 686 / 658 TFLOP/s, 94 / 87 / 83 % of a large
//        matrix product.
#pragma once

#include "sm90/sparse/held_fetch.cuh"
#include "sm90/sparse/held_score.cuh"
#include "sm90/sparse/held_value.cuh"

namespace sparrow_sparse {

// Registers per thread of each group. Accumulators and A operands take 128 registers of a math thread: the value groups
// hold accumulators [64, 256] (128), the score group holds query tiles (96) and scores (32). The other 32 are for
// addresses, phases and statistics.
constexpr int kHeldMathRegisters = 160, kHeldFetchRegisters = 32;
static_assert(3 * kHeldMathRegisters + kHeldFetchRegisters <= 4 * kHeldLaunchRegisters,
    "more registers than the launch got: a group would wait for them for ever");

template <int Tiles>
__device__ __forceinline__ void attend_held(const MappedAttendArgs& mapped) {
    const SparseAttendArgs& args = mapped.attend;
    HeldStorage<Tiles>& shared = shared_memory<HeldStorage<Tiles>>();
    if (threadIdx.x == 0) {
        init_barriers(shared);
    }
    __syncthreads();
    if constexpr (kEvery) {
        list_units(args, head_groups(args));  // lengths were written before the previous kernel
    }
    ptx::wait_for_previous_kernel();
    const u32 group = __shfl_sync(ptx::kFullMask, threadIdx.x / 128, 0);
    if (group == 0) {
        ptx::registers_grow<kHeldMathRegisters>();
        HeldScoreGroup<Tiles>(args, shared).run();
    } else if (group == 1) {
        ptx::registers_grow<kHeldMathRegisters>();
        HeldValueGroup<Tiles, 0>(args, &mapped.output_map, shared).run();
    } else if (group == 2) {
        ptx::registers_grow<kHeldMathRegisters>();
        HeldValueGroup<Tiles, 1>(args, &mapped.output_map, shared).run();
    } else {
        ptx::registers_shrink<kHeldFetchRegisters>();
        HeldFetchGroup<Tiles>(args, shared, &mapped.query_map).run();
        ptx::release_next_kernel();
    }
}

}  // namespace sparrow_sparse
