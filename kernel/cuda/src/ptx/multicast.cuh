// Multicast copies to several blocks of a cluster, copies from shared to global memory, and conversions of vectors
// and fragments for matrix products.
#pragma once

#include "ptx/types.h"

namespace ptx {

// L2 hint for data with normal eviction priority.
constexpr u64 kEvictNormal = 0x1000000000000000ull;

// Copies a box to the same shared-memory offset in every block of the mask. The bytes are counted by the barrier at
// the same offset in each of these blocks.
__device__ __forceinline__ void load_3d_multicast(u32 dst, const TensorMap* map, u32 bar, i32 c0, i32 c1, i32 c2,
                                                  u16 blocks, u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
        "[%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(dst),
        "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "h"(blocks), "l"(policy)
        : "memory");
}

// Copies a box from shared to global memory. Elements outside the tensor are not written. The threads that wrote the
// box must have called fence_async_proxy.
__device__ __forceinline__ void store_3d(const TensorMap* map, u32 src, i32 c0, i32 c1, i32 c2) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map), "r"(src),
                 "r"(c0), "r"(c1), "r"(c2)
                 : "memory");
}

// Commits the stores of this thread as one group. stores_read returns when the shared memory has been read;
// stores_wait returns when the data has been written to global memory.
__device__ __forceinline__ void stores_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ __forceinline__ void stores_read() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void stores_wait() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Stores two matrices [8][8] of 16-bit elements, transposed. Lane l holds columns 2 * (l % 4) and 2 * (l % 4) + 1 of
// row l / 4. Lanes 0 to 15 pass the destination address of column l % 8 of matrix l / 8, which is 16 bytes long.
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

// Packs two values as bf16, with low in the lower half of the word.
__device__ __forceinline__ u32 pack_bf16(float low, float high) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

}  // namespace ptx
