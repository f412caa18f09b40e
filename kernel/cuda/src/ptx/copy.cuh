// Bulk copies by the copy engine, global to shared memory, completing on an mbarrier. The issuing thread announces
// the bytes with barrier_expect. Elements outside a tensor map read as zero and still count as bytes, so a tile at
// the edge needs no special case.
#pragma once

#include "ptx/types.h"

namespace ptx {

// L2 hint for data that is read once: do not displace what others will read again.
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

// Contiguous bytes: source, destination and size are multiples of 16.
__device__ __forceinline__ void load_bytes(u32 dst, const void* src, u32 bytes, u32 bar, u64 policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
            ::"r"(dst), "l"(src),
        "r"(bytes), "r"(bar), "l"(policy)
        : "memory");
}

// Sixteen bytes that are used once: they take no room in the first-level cache and leave L2 early.
__device__ __forceinline__ float4 load_once(const float* src) {
    float4 v;
    asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(src), "l"(kEvictFirst));
    return v;
}

// Asks for bytes to be brought into L2. Source and size are multiples of 16.
__device__ __forceinline__ void prefetch_bytes(const void* src, u32 bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(src), "r"(bytes) : "memory");
}

// Asks for the line of an address to be brought into L2. Lanes ask side by side; a bulk prefetch takes one lane after
// the other.
__device__ __forceinline__ void prefetch_line(const void* address) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace ptx
