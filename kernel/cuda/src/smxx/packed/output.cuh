// Common parts of the matrix products with packed weights: items of work, addresses of weights, sums of parts of k, and
// results.
#pragma once

#include "ptx/warp.cuh"
#include "smxx/activation.cuh"
#include "smxx/num.cuh"
#include "smxx/packed/args.h"

namespace sparrow_packed {

constexpr int kStripes = 4;  // stripes per tile

// One work item: Stripes stripes of an expert's weights, multiplied by a group of the expert's tokens, over a part of
// k.
struct Item {
    i32 expert;
    i32 tile;   // index of a tile of Stripes stripes
    i32 first;  // index of the group's first token in the sorted order
    i32 count;  // number of tokens in the group
    i32 part;   // index of the part of k
    i32 slot;   // index in args.sums and args.arrived, the same for all parts
};

struct Span {
    i32 begin, end;
};

__device__ __forceinline__ Span span_of(const PackedArgs& args, i32 part) {
    const i32 each = (args.units + args.parts - 1) / args.parts;
    return {part * each, min(args.units, (part + 1) * each)};
}

// Reports whether the previous kernel writes the list of experts, as it does for products of gate and up.
__device__ __forceinline__ bool late(const PackedArgs& args) { return args.order != nullptr && !args.from_pairs; }

// Returns the address of the first unit of an item.
template <class S>
__device__ __forceinline__ const u8* weights_of(const PackedArgs& args, const Item& item) {
    const i32 stripe = item.tile * S::Stripes;
    const i64 tile = static_cast<i64>(item.expert) * args.tiles + stripe / kStripes;
    return args.weights + (tile * args.units * kStripes + stripe % kStripes) * S::F::Bytes;
}

// Combines the sums of the parts of k in global memory, piece by piece. The last warp to arrive adds all parts in
// order; for it, the function returns true, with the total in sum. Warps do not wait for the other warps of their
// thread block. args.arrived has one counter per piece of an item.
template <class S>
__device__ __forceinline__ bool add_parts_of_warp(const PackedArgs& args, float (&sum)[S::Tokens / 2], const Item& item,
                                                  u32 piece, u32 lane) {
    constexpr int kFours = S::Tokens / 8;
    const i64 slot = static_cast<i64>(item.slot) * (4 * S::Groups) + piece;
    float4* slab = reinterpret_cast<float4*>(args.sums) + slot * args.parts * (kFours * 32) + lane;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
        __stcg(slab + (item.part * kFours + i) * 32,
               make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]));
    }
    __threadfence();
    __syncwarp();
    u32 arrived = 0;
    if (lane == 0) {
        arrived = atomicAdd(args.arrived + slot, 1u) + 1;
    }
    if (__shfl_sync(ptx::kFullMask, arrived, 0) != static_cast<u32>(args.parts)) {
        return false;
    }
    if (lane == 0) {
        args.arrived[slot] = 0;
    }
    __threadfence();
    for (i32 part = 0; part < args.parts; ++part) {
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            const float4 v = __ldcg(slab + (part * kFours + i) * 32);
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
