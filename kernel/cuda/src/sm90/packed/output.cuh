// Common parts of the matrix products with packed weights: addresses of weights, the list of experts, sums of parts,
// and results.
#pragma once

#include "sm90/packed/config.h"
#include "smxx/activation.cuh"
#include "smxx/num.cuh"

namespace sparrow_packed {

// Reports whether the previous kernel writes the list of experts, as it does for products of gate and up.
__device__ __forceinline__ bool late(const PackedArgs& args) { return args.order != nullptr && !args.from_pairs; }

// Returns the address of the first unit of an item.
template <class S>
__device__ __forceinline__ const u8* weights_of(const PackedArgs& args, const Item& item) {
    const i32 stripe = item.tile * S::Stripes;
    const i64 tile = static_cast<i64>(item.expert) * args.tiles + stripe / kStripes;
    return args.weights + (tile * args.units * kStripes + stripe % kStripes) * S::F::Bytes;
}

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

// Writes the results of an item. A lane has rows 16 warp + lane/4 and 16 warp + lane/4 + 8 of its stripe, and two of
// every eight tokens.
template <class S>
__device__ __forceinline__ void write(const PackedArgs& args, const float (&sum)[S::Tokens / 2], const Item& item,
                                      i32 stripe, u32 warp, u32 lane) {
    const float upper = args.factors[2 * item.expert], lower = args.factors[2 * item.expert + 1];
    if (args.gated) {
        const i32 column = stripe * 32 + static_cast<i32>(warp * 8 + lane / 4);
#pragma unroll
        for (int e = 0; e < S::Tokens / 8; ++e) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const i32 token = 8 * e + static_cast<i32>(lane % 4) * 2 + i;
                if (token < item.count) {
                    const float v = gated(__fmul_rn(sum[4 * e + i], upper), __fmul_rn(sum[4 * e + 2 + i], lower),
                                          args.limit);
                    static_cast<u16*>(args.out)[(item.first + token) * args.out_stride + column] =
                        static_cast<u16>(bf16_bits(v));
                }
            }
        }
        return;
    }
    const i32 column = stripe * 64 + static_cast<i32>(warp * 16 + lane / 4);
#pragma unroll
    for (int e = 0; e < S::Tokens / 8; ++e) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const i32 token = 8 * e + static_cast<i32>(lane % 4) * 2 + i;
            if (token >= item.count) {
                continue;
            }
            const i32 place = item.first + token;
            const i64 row = (args.order != nullptr ? args.order[place] : place) * args.out_stride;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const i32 at = column + 8 * half;
                const float v = __fmul_rn(sum[4 * e + 2 * half + i], half == 0 ? upper : lower);
                if (at >= args.columns) {
                    continue;
                }
                if (args.out_f32) {
                    static_cast<float*>(args.out)[row + at] = v;
                } else {
                    static_cast<u16*>(args.out)[row + at] = static_cast<u16>(bf16_bits(v));
                }
            }
        }
    }
}

}  // namespace sparrow_packed
