// Copies of 16 bytes by ordinary threads that complete on an mbarrier, and the fence between what threads write and
// what the tensor cores and the copy engine read, and barriers of a part of the block.
#pragma once

#include "ptx/types.h"

namespace ptx {

// Sixteen bytes from global to shared memory, or sixteen zero bytes when valid is false: then src is not read, and may
// lie outside of what is allocated.
__device__ __forceinline__ void copy_16(u32 dst, const void* src, bool valid) {
    const u32 bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
}

// One arrival as soon as all copies this thread has asked for so far have landed. The barrier's count includes it.
__device__ __forceinline__ void copies_arrive(u32 bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}

// Closes a group of copies of this thread; copies_wait<N> returns when all but its last N groups have landed.
__device__ __forceinline__ void copies_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N>
__device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Orders shared memory written by threads before later reads of it by the tensor cores: in the writer before its
// barrier, and in the reader after it when the writes were copies.
__device__ __forceinline__ void fence_async_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A barrier among Threads threads of the block, apart from __syncthreads (number 0).
template <int Number, int Threads>
__device__ __forceinline__ void group_sync() {
    asm volatile("bar.sync %0, %1;" ::"n"(Number), "n"(Threads) : "memory");
}

}  // namespace ptx
