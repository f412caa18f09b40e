// Asynchronous 16-byte copies whose completion is counted by an mbarrier, the fence that orders writes by threads
// before reads by the tensor cores and the copy engine, and named barriers for a part of the block.
#pragma once

#include "ptx/types.h"

namespace ptx {

// Copies 16 bytes from global to shared memory. If valid is false, writes 16 zero bytes instead: src is then not read
// and may be an invalid address.
__device__ __forceinline__ void copy_16(u32 dst, const void* src, bool valid) {
    const u32 bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
}

// Arrives once at the barrier when all earlier copies of this thread have completed. The barrier's arrival count must
// include this arrival.
__device__ __forceinline__ void copies_arrive(u32 bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}

// Commits the copies of this thread as one group. copies_wait<N> returns when at most the last N groups are
// incomplete.
__device__ __forceinline__ void copies_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N>
__device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Orders writes to shared memory by threads before later reads by the tensor cores. The writing thread executes it
// before it arrives at a barrier; the reading thread executes it after the wait if the writes were asynchronous copies.
__device__ __forceinline__ void fence_async_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Waits at a named barrier for Threads threads of the block. It is independent of __syncthreads, which is barrier 0.
template <int Number, int Threads>
__device__ __forceinline__ void group_sync() {
    asm volatile("bar.sync %0, %1;" ::"n"(Number), "n"(Threads) : "memory");
}

}  // namespace ptx
