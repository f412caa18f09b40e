// Words that devices of one machine tell each other, and the clock that all of them read.
#pragma once

#include "ptx/types.h"

namespace ptx {

// What this thread, and threads that met it at a block's barrier before, have written is seen by whoever reads the word
// with load_acquire_system.
__device__ __forceinline__ void store_release_system(u32* at, u32 v) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}

__device__ __forceinline__ u32 load_acquire_system(const u32* at) {
    u32 v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}

// Nanoseconds of a clock that goes on while threads wait.
__device__ __forceinline__ u64 clock_nanoseconds() {
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
    return t;
}

}  // namespace ptx
