// Warp-level and launch-level instructions: lane numbers, warp reductions, register budgets, programmatic dependent
// launch.
#pragma once

#include "ptx/types.h"

namespace ptx {

constexpr u32 kFullMask = 0xFFFFFFFFu;

__device__ __forceinline__ u32 warp_sum(u32 v) {
    u32 r;
    asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v));
    return r;
}

__device__ __forceinline__ u32 warp_max(u32 v) {
    u32 r;
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v));
    return r;
}

__device__ __forceinline__ i32 warp_max_signed(i32 v) {
    i32 r;
    asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v));
    return r;
}

__device__ __forceinline__ i32 warp_min_signed(i32 v) {
    i32 r;
    asm volatile("redux.sync.min.s32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v));
    return r;
}

// Returns the inclusive prefix sum over the lanes of a warp.
__device__ __forceinline__ u32 warp_prefix(u32 v, u32 lane) {
#pragma unroll
    for (u32 d = 1; d < 32; d *= 2) {
        u32 below = __shfl_up_sync(kFullMask, v, d);
        v += lane >= d ? below : 0;
    }
    return v;
}

// Changes the register budget of a warpgroup. All four warps must execute it; N is a multiple of 8.
template <int N>
__device__ __forceinline__ void registers_grow() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N>
__device__ __forceinline__ void registers_shrink() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// Programmatic dependent launch: waits until the previous kernel has finished and its writes are visible. If the
// launch does not use this feature, returns at once. Devices before Hopper, and PTX that targets them, do not have
// the feature.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Allows the blocks of the next kernel to start once every block of this kernel has called it or exited.
__device__ __forceinline__ void release_next_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace ptx
