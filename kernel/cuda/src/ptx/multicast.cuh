// Copies that land in several blocks of a cluster at once, and the vectors and fragments that products store.
#pragma once

#include "ptx/types.h"

namespace ptx {

// L2 hint for data that neither stays longer nor goes earlier than other data.
constexpr u64 kEvictNormal = 0x1000000000000000ull;

// A box to the same place in every block of the mask; the bytes count on the barrier at the same place in each of them.
__device__ __forceinline__ void load_3d_multicast(u32 dst, const TensorMap* map, u32 bar, i32 c0, i32 c1, i32 c2, u16 blocks, u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(dst),
        "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "h"(blocks), "l"(policy)
        : "memory");
}

// Stores two matrices [8][8] of 16-bit elements transposed: lane l holds of row l / 4 the columns 2 * (l % 4) and the next, and names in
// lanes 0 to 15 where column l % 8 of matrix l / 8 goes, 16 bytes.
__device__ __forceinline__ void store_columns(u32 address, u32 first, u32 second) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(first), "r"(second) : "memory");
}

__device__ __forceinline__ uint4 load_vector(u32 address) {
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address) : "memory");
    return v;
}

__device__ __forceinline__ float2 load_pair(u32 address) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
    return v;
}

__device__ __forceinline__ float load_float(u32 address) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
    return v;
}

// Two values as bf16, low in the lower half.
__device__ __forceinline__ u32 pack_bf16(float low, float high) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

}  // namespace ptx
