// Named barriers whose number is known only at run time, for warps that pass data to each other through shared memory.
#pragma once

#include "ptx/types.h"

namespace ptx {

// Waits at barrier `number` (1 to 15) until N threads have arrived. Their earlier writes are then visible.
template <int N>
__device__ __forceinline__ void named_sync(u32 number) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(N) : "memory");
}

// Arrives at barrier `number` of N threads without waiting for the others.
template <int N>
__device__ __forceinline__ void named_arrive(u32 number) {
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "n"(N) : "memory");
}

}  // namespace ptx
