// Synchronisation between two blocks of a cluster, in addition to the stores of cluster.cuh: arrivals at the barrier
// of a peer, and bulk copies from shared memory to the shared memory of a peer.
#pragma once

#include "ptx/cluster.cuh"

namespace ptx {

// Arrives once at a barrier in the memory of a peer (peer_address), after the reads of this thread. The arrival
// releases a buffer slot; data is transferred with peer_send and peer_copy, whose bytes a barrier counts. The arrival
// has no cluster-scope release semantics, because it would then wait for all stores of the thread.
__device__ __forceinline__ void peer_arrive(u32 bar) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}

// Copies bytes from the shared memory of this block to that of a peer and counts them on a barrier of the peer.
// Addresses and size are multiples of 16. Threads that wrote the bytes must have called fence_async_proxy, and the
// bytes must not be overwritten before the peer has received them.
__device__ __forceinline__ void peer_copy(u32 to, u32 from, u32 bytes, u32 bar) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        ::"r"(to), "r"(from), "r"(bytes), "r"(bar)
                 : "memory");
}

}  // namespace ptx
