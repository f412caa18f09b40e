// System-scope flags between the devices of a machine, and a clock in nanoseconds.
#pragma once

#include "ptx/types.h"

namespace ptx {

// Stores a word with release semantics at system scope. A thread that reads it with load_acquire_system sees the
// writes of this thread, and those of threads that synchronised with it at an earlier block barrier.
__device__ __forceinline__ void store_release_system(u32* at, u32 v) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}

__device__ __forceinline__ u32 load_acquire_system(const u32* at) {
    u32 v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}

// Returns nanoseconds of a clock that also advances while threads wait.
__device__ __forceinline__ u64 clock_nanoseconds() {
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
    return t;
}

}  // namespace ptx
