// Contiguous bytes to several blocks of a cluster at once.
#pragma once

#include "ptx/types.h"

namespace ptx {

// As load_bytes (copy.cuh), to the same place in every block of the mask; the bytes count on the barrier at the same
// place in each of them.
__device__ __forceinline__ void load_bytes_multicast(u32 dst, const void* src, u32 bytes, u32 bar, u16 blocks,
    u64 policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], "
        "[%1], %2, [%3], %4, %5;" ::"r"(dst), "l"(src),
        "r"(bytes), "r"(bar), "h"(blocks), "l"(policy)
        : "memory");
}

}  // namespace ptx
