// Bulk copies from global to shared memory by the copy engine (TMA). They complete on an mbarrier, and the issuing
// thread announces the bytes with barrier_expect. Elements outside a tensor map are filled with zeros and still count
// as bytes, so tiles at the edge of a tensor need no special case.
#pragma once

#include "ptx/types.h"

namespace ptx {

// L2 hint for data that is read once: evict it before data that is read again.
constexpr u64 kEvictFirst = 0x12F0000000000000ull;
// L2 hint for data that many blocks read.
constexpr u64 kEvictLast = 0x14F0000000000000ull;

__device__ __forceinline__ void prefetch_map(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void load_1d(u32 dst, const TensorMap* map, u32 bar, i32 c0, u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, "
        "{%3}], [%2], %4;" ::"r"(dst),
        "l"(map), "r"(bar), "r"(c0), "l"(policy)
        : "memory");
}

__device__ __forceinline__ void load_2d(u32 dst, const TensorMap* map, u32 bar, i32 c0, i32 c1, u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, "
        "%4}], [%2], %5;" ::"r"(dst),
        "l"(map), "r"(bar), "r"(c0), "r"(c1), "l"(policy)
        : "memory");
}

__device__ __forceinline__ void load_3d(u32 dst, const TensorMap* map, u32 bar, i32 c0, i32 c1, i32 c2, u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%3, "
        "%4, %5}], [%2], %6;" ::"r"(dst),
        "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "l"(policy)
        : "memory");
}

// Copies contiguous bytes from global to shared memory. Source, destination and size are multiples of 16.
__device__ __forceinline__ void load_bytes(u32 dst, const void* src, u32 bytes, u32 bar, u64 policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
            ::"r"(dst), "l"(src),
        "r"(bytes), "r"(bar), "l"(policy)
        : "memory");
}

// Loads 16 bytes that are used once. They are not kept in L1 and are evicted first from L2.
__device__ __forceinline__ float4 load_once(const float* src) {
    float4 v;
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(src), "l"(kEvictFirst));
    return v;
}

// Prefetches bytes into L2. Source and size are multiples of 16.
__device__ __forceinline__ void prefetch_bytes(const void* src, u32 bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(src), "r"(bytes) : "memory");
}

// Prefetches the cache line of an address into L2. All lanes of a warp issue this prefetch in parallel; a bulk
// prefetch is issued one lane at a time.
__device__ __forceinline__ void prefetch_line(const void* address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace ptx
