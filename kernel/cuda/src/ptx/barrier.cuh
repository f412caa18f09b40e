// Wrappers for the mbarrier and fence instructions. A barrier is an 8-byte word in shared memory. Functions take its
// shared-window address (shared_address), never a generic pointer.
//
// A barrier completes a phase when its pending arrivals and its pending bytes are both zero. A wait takes the parity
// of the phase. The first wait of a consumer uses parity 0. The first wait of a producer for a free slot uses parity
// 1, which a new barrier reports as complete.
#pragma once

#include "ptx/types.h"

namespace ptx {

__device__ __forceinline__ u32 shared_address(const void* p) {
    return static_cast<u32>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(u32 bar, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine; a block barrier must follow for the other threads.
__device__ __forceinline__ void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(u32 bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

// Arrives `count` times at a barrier.
__device__ __forceinline__ void barrier_arrive(u32 bar, u32 count) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

// Arrives once and adds `bytes` to the bytes that the copy engine must deliver in this phase.
__device__ __forceinline__ void barrier_expect(u32 bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

// Suspends the thread in hardware until the phase is complete or about one millisecond has passed. Returns true if
// the phase is complete.
__device__ __forceinline__ bool barrier_try_wait(u32 bar, u32 parity) {
    constexpr u32 kNanoseconds = 1000000;
    u32 done;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, %3;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(done)
        : "r"(bar), "r"(parity), "r"(kNanoseconds)
        : "memory");
    return done != 0;
}

__device__ __forceinline__ void barrier_wait(u32 bar, u32 parity) {
    while (!barrier_try_wait(bar, parity)) {
    }
}

// Sets a flag in shared memory. Other threads poll it with read_acquire; a thread that reads the set flag also sees all
// writes made before the flag was set. Both sides use atomic operations because the word is read while it is written.
__device__ __forceinline__ void raise_release(u32 address) {
    asm volatile("red.release.cta.shared::cta.add.u32 [%0], 1;" ::"r"(address) : "memory");
}

// Returns the word of a flag. One lane reads it for all active lanes of the warp, because atomic operations on one word
// are serialised.
__device__ __forceinline__ u32 read_acquire(u32 address) {
    const u32 here = __activemask();
    const i32 reader = __ffs(here) - 1;
    u32 value = 0;
    if (static_cast<i32>(threadIdx.x % 32) == reader) {
        asm volatile("atom.acquire.cta.shared::cta.or.b32 %0, [%1], 0;" : "=r"(value) : "r"(address) : "memory");
    }
    return __shfl_sync(here, value, reader);
}

// Waits at a named barrier for the first N threads of the block. Other warps can do other work meanwhile.
template <int N>
__device__ __forceinline__ void threads_sync() {
    asm volatile("bar.sync 1, %0;" ::"n"(N) : "memory");
}

}  // namespace ptx
