// Thread block clusters: block ranks, the cluster barrier, and access to the shared memory of peer blocks. Peer
// memory is addressed in the shared::cluster window (peer_address). A block must not exit while a peer can still
// access its shared memory.
#pragma once

#include "ptx/types.h"

namespace ptx {

// Returns the number of blocks of the cluster. A launch without clusters has clusters of one block.
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

// Waits for all threads of all blocks of the cluster; whole warps must call it. Writes before the call, in any block,
// are visible after it. It takes about 400 clocks more than cluster_arrive and cluster_wait, because it waits for every
// outstanding write of the block.
__device__ __forceinline__ void cluster_sync() {
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\n"
        "barrier.cluster.wait.acquire.aligned;\n" ::
            : "memory");
}

// The cluster barrier in two halves. They order only mbarriers that were initialised and fenced before; they do not
// order other memory accesses.
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Returns the address of the same offset in the shared memory of block `rank`.
__device__ __forceinline__ u32 peer_address(u32 address, u32 rank) {
    u32 r;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank));
    return r;
}

__device__ __forceinline__ void peer_store(u32 address, u32 v) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}

// Stores to the shared memory of a peer block. The bytes are counted by an mbarrier of that block. A thread that has
// waited on that mbarrier sees the stored data.
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
