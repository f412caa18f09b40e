// Named barriers for blocks whose warps work in separate groups, and counters in shared memory.
#pragma once

#include "ptx/types.h"

namespace ptx {

// Waits at named barrier `number` (1 to 15) for N threads.
template <int N>
__device__ __forceinline__ void team_sync(u32 number) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(N) : "memory");
}

// Adds one to a word of shared memory.
__device__ __forceinline__ void count_one(u32 address) {
    asm volatile("red.relaxed.cta.shared::cta.add.u32 [%0], 1;" ::"r"(address) : "memory");
}

}  // namespace ptx
