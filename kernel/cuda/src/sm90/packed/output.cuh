// Common parts of the matrix products with packed weights: the list of experts, and sums of parts of a thread block.
#pragma once

#include "sm90/packed/config.h"

namespace sparrow_packed {

// Reads the list of experts that have rows into shared memory. A plain matrix product has one entry.
template <class S, class Shared>
__device__ __forceinline__ void read_list(const PackedArgs& args, Shared& shared) {
    if (late(args)) {
        ptx::wait_for_previous_kernel();
    }
    i32 listed = 1;
    if (args.order != nullptr) {
        listed = *const_cast<const volatile i32*>(args.totals);
        for (i32 i = threadIdx.x; i < listed; i += S::Threads) {
            const volatile i32* from = reinterpret_cast<const i32*>(args.list + i);
            shared.list[i] = ListedView{from[0], from[1], from[2], from[3]};
        }
    } else if (threadIdx.x == 0) {
        shared.list[0] = ListedView{0, 0, args.rows, 0};
    }
    if (threadIdx.x == 0) {
        shared.listed = listed;
    }
    __syncthreads();
}

// Combines the sums of the parts of k in global memory. The last thread block to arrive adds all parts in order; for
// it, the function returns true, with the total in sum.
template <class S, class Shared, int N>
__device__ __forceinline__ bool add_parts(const PackedArgs& args, Shared& shared, float (&sum)[N],
                                          const Item& item) {
    constexpr int kThreads = 128 * S::Groups, kFours = N / 4;
    float4* slab = reinterpret_cast<float4*>(args.sums) +
                   static_cast<i64>(item.slot) * args.parts * (kFours * kThreads) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
        __stcg(slab + (item.part * kFours + i) * kThreads,
               make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]));
    }
    __threadfence();
    ptx::threads_sync<kThreads>();
    if (threadIdx.x == 0) {
        const bool last = atomicAdd(args.arrived + item.slot, 1u) + 1 == static_cast<u32>(args.parts);
        if (last) {
            args.arrived[item.slot] = 0;
        }
        shared.last = last;
        __threadfence();
    }
    ptx::threads_sync<kThreads>();
    if (!shared.last) {
        return false;
    }
    for (i32 part = 0; part < args.parts; ++part) {
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            const float4 v = __ldcg(slab + (part * kFours + i) * kThreads);
            const float f[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                sum[4 * i + j] = part == 0 ? f[j] : __fadd_rn(sum[4 * i + j], f[j]);
            }
        }
    }
    return true;
}

}  // namespace sparrow_packed
