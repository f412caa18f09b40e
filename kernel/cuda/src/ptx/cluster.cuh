// Blocks of a cluster: who they are, their barrier, and each other's shared memory. A peer's memory is named by an
// address in the shared::cluster window (peer_address); a block must not end while a peer may still use its memory.
#pragma once

#include "ptx/types.h"

namespace ptx {

// A launch without clusters is a cluster of one.
__device__ __forceinline__ u32 cluster_blocks() {
    u32 n;
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(n));
    return n;
}

__device__ __forceinline__ u32 cluster_rank() {
    u32 r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

// All threads of all blocks, with whole warps: what was written before, in whichever block, is seen after. It waits
// for every write of the block, so it is slow: some 400 clocks more than the two halves below.
__device__ __forceinline__ void cluster_sync() {
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\n"
        "barrier.cluster.wait.acquire.aligned;\n" ::
            : "memory");
}

// The same in two halves, which order mbarriers that were initialised and fenced before, and nothing else.
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address of the same place in the shared memory of block `rank`.
__device__ __forceinline__ u32 peer_address(u32 address, u32 rank) {
    u32 r;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank));
    return r;
}

__device__ __forceinline__ void peer_store(u32 address, u32 v) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}

// Stores whose bytes count on an mbarrier of the same peer: who has waited for it sees them.
__device__ __forceinline__ void peer_send(u32 address, u32 v, u32 bar) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
        ::"r"(address), "r"(v), "r"(bar) : "memory");
}

__device__ __forceinline__ void peer_send(u32 address, u64 v, u32 bar) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u64 [%0], %1, [%2];"
        ::"r"(address), "l"(v), "r"(bar) : "memory");
}

__device__ __forceinline__ void peer_send(u32 address, uint4 v, u32 bar) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
        ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w), "r"(bar)
                 : "memory");
}

}  // namespace ptx
