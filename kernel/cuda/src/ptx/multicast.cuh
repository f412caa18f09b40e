// Copies that land in several blocks of a cluster at once, copies from shared to global memory, and the vectors and
// fragments of products.
#pragma once

#include "ptx/types.h"

namespace ptx {

// L2 hint for data that neither stays longer nor goes earlier than other data.
constexpr u64 kEvictNormal = 0x1000000000000000ull;

// A box to the same place in every block of the mask; the bytes count on the barrier at the same place in each of them.
__device__ __forceinline__ void load_3d_multicast(u32 dst, const TensorMap* map, u32 bar, i32 c0, i32 c1, i32 c2,
                                                  u16 blocks, u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(dst),
        "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "h"(blocks), "l"(policy)
        : "memory");
}

// A box from shared to global memory; what lies outside the tensor is left out. Writers of the box have fenced
// (fence_async_proxy).
__device__ __forceinline__ void store_3d(const TensorMap* map, u32 src, i32 c0, i32 c1, i32 c2) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map), "r"(src),
                 "r"(c0), "r"(c1), "r"(c2)
                 : "memory");
}

// Closes a group of stores of this thread; stores_read returns when shared memory has been read, stores_wait when all
// is written.
__device__ __forceinline__ void stores_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ __forceinline__ void stores_read() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void stores_wait() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Stores two matrices [8][8] of 16-bit elements transposed: lane l holds of row l / 4 the columns 2 * (l % 4) and the
// next, and names in lanes 0 to 15 where column l % 8 of matrix l / 8 goes, 16 bytes.
__device__ __forceinline__ void store_columns(u32 address, u32 first, u32 second) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(first),
                 "r"(second)
                 : "memory");
}

__device__ __forceinline__ uint4 load_vector(u32 address) {
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address)
                 : "memory");
    return v;
}

__device__ __forceinline__ void store_vector(u32 address, u32 x, u32 y, u32 z, u32 w) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
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
