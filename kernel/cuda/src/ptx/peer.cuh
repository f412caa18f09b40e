// What two blocks of a cluster tell each other beside stores (cluster.cuh): arrivals at a peer's barrier, and whole
// pieces of shared memory by the copy engine.
#pragma once

#include "ptx/cluster.cuh"

namespace ptx {

// One arrival at a barrier in a peer's memory (peer_address), after what this thread has read: it hands over a place,
// not data. Data goes with peer_send and peer_copy, whose bytes a barrier counts. Orders of cluster scope are not
// asked for: a release would wait for all stores of the thread, an acquire for all its loads, and empty the
// first-level cache.
__device__ __forceinline__ void peer_arrive(u32 bar) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}

// Bytes of this block's shared memory to a peer's, counted on a barrier there. Addresses and size are multiples of
// 16. Threads that wrote them have fenced (fence_async_proxy), and nobody overwrites them before the peer has them.
__device__ __forceinline__ void peer_copy(u32 to, u32 from, u32 bytes, u32 bar) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        ::"r"(to), "r"(from), "r"(bytes), "r"(bar)
                 : "memory");
}

}  // namespace ptx
