// What two blocks of a cluster tell each other beside stores (cluster.cuh): arrivals at a peer's barrier, waiting for a peer's, and whole pieces of
// shared memory by the copy engine.
#pragma once

#include "ptx/cluster.cuh"

namespace ptx {

// One arrival at a barrier in a peer's memory (peer_address): what this thread has read is read for who waits with barrier_wait_cluster.
__device__ __forceinline__ void peer_arrive(u32 bar) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}

// Waits for a phase of an own barrier to which threads of peers arrive, too.
__device__ __forceinline__ void barrier_wait_cluster(u32 bar, u32 parity) {
    constexpr u32 kNanoseconds = 1000000;
    u32 done;
    do {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2, %3;\n"
            "selp.u32 %0, 1, 0, p;\n"
            "}\n"
            : "=r"(done)
            : "r"(bar), "r"(parity), "r"(kNanoseconds)
            : "memory");
    } while (done == 0);
}

// Bytes of this block's shared memory to a peer's, counted on a barrier there. Addresses and size are multiples of 16. Threads that wrote them have
// fenced (fence_async_proxy), and nobody overwrites them before the peer has them.
__device__ __forceinline__ void peer_copy(u32 to, u32 from, u32 bytes, u32 bar) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "r"(from), "r"(bytes), "r"(bar)
                 : "memory");
}

}  // namespace ptx
