// Definitions that the portable kernels share: one row per warp, warp reductions, fault bits.
#pragma once

#include "ptx/types.h"
#include "ptx/warp.cuh"

using f32 = float;
using f64 = double;

#define DEVICE __device__ __forceinline__
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)

constexpr i32 kWarpsPerBlock = 8; // one row per warp, eight rows per block
constexpr i32 kThreads = 32 * kWarpsPerBlock;

// A launch with programmatic overlap can start before the previous kernel has finished. This function waits for the
// writes of the previous kernel and allows the next kernel to start. Without the launch attribute, both instructions
// do nothing.
DEVICE void begin_after_previous() {
    ptx::wait_for_previous_kernel();
    ptx::release_next_kernel();
}

DEVICE i32 lane_id() { return threadIdx.x & 31; }

// Short rows are handled by groups of 8 lanes, four rows per warp.
constexpr i32 kGroupLanes = 8;
constexpr i32 kGroupsPerBlock = kThreads / kGroupLanes;
DEVICE i32 group_lane() { return threadIdx.x & (kGroupLanes - 1); }
DEVICE i32 block_group() { return threadIdx.x / kGroupLanes; }

// Returns the number of the row that this warp has. A block has kWarpsPerBlock rows.
DEVICE i64 warp_row() { return (i64)blockIdx.x * kWarpsPerBlock + (threadIdx.x >> 5); }

// Returns the maximum over groups of `Lanes` adjacent lanes, in every lane of the group.
template <int Lanes> DEVICE u32 group_max(u32 v) {
#pragma unroll
    for (int d = 1; d < Lanes; d *= 2) v = max(v, __shfl_xor_sync(ptx::kFullMask, v, d));
    return v;
}

// Returns the sum over a group of 8 lanes in a fixed order. Every lane gets the same bits because each addition is
// symmetric.
DEVICE f64 group_sum(f64 v) {
#pragma unroll
    for (int d = 1; d < kGroupLanes; d *= 2) v = __dadd_rn(v, __shfl_xor_sync(ptx::kFullMask, v, d));
    return v;
}

// Bits of the fault word. Kernels that write or gather rows set them instead of accessing memory out of range.
constexpr u32 kFaultSlot = 1;     // a slot at or beyond the pool
constexpr u32 kFaultPosition = 2; // a position outside the rotary table
DEVICE void raise_fault(u32* faults, u32 bit) {
    if (faults != nullptr) atomicOr(faults, bit);
}
