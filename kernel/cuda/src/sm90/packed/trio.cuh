// Matrix products of up to 16 tokens with packed weights, for matrices with many tiles: out = x * weight transposed.
// Arguments are those of product.cuh, without experts, and results are bitwise equal.
//
// Block: as in few.cuh. Three blocks per SM have 128 weight rows each; a warp has 32 of them and reads tokens once for
//        all 32. A block has consecutive items (Walk below), stores the sums of its parts of k, and counts them after
//        its last item. A counter in global memory takes microseconds, so that counting each item would delay the next.
#pragma once

#include "sm90/packed/product.cuh"

namespace sparrow_packed {

template <class Format>
struct Trio : FewOf<Format, 16, 1, 2, 2> {};

// The items of a block: items / gridDim consecutive ones, rounded up or down. Parts of k are the innermost index, so
// that most parts of 128 rows belong to one block or two. All tokens are one group.
template <class F>
struct Walk<Trio<F>> {
    i32 at = -1, end = 0;

    __device__ __forceinline__ void begin(const PackedArgs& args) {
        const u32 items = args.tiles * (kStripes / Trio<F>::Stripes) * args.parts;
        at = static_cast<i32>(items * blockIdx.x / gridDim.x);
        end = static_cast<i32>(items * (blockIdx.x + 1) / gridDim.x);
    }
    static __device__ __forceinline__ Item item_of(const PackedArgs& args, i32 item) {
        const i32 tile = item / args.parts;
        return Item{0, tile, 0, args.rows, item - tile * args.parts, tile};
    }
    __device__ __forceinline__ bool next(const FewStorage<Trio<F>>&, const PackedArgs& args, Item& out) {
        if (at < 0) {
            begin(args);
        }
        if (at >= end) {
            return false;
        }
        out = item_of(args, at++);
        return true;
    }
};

// Returns the place of a lane's first four sums of a part of 16 weight rows: piece p of the warp's rows in the tile.
// The other sums are 32 places apart.
template <class S>
__device__ __forceinline__ float4* sums_of(const PackedArgs& args, i32 tile, i32 part, int p) {
    const i64 piece = static_cast<i64>(tile) * (4 * S::Groups) + threadIdx.x / 32 * S::Pieces + p;
    return reinterpret_cast<float4*>(args.sums) + (piece * args.parts + part) * (S::Tokens / 8 * 32) +
           threadIdx.x % 32;
}

template <class S>
__device__ __forceinline__ void store_part(const PackedArgs& args, const float (&sum)[S::Pieces][S::Tokens / 2],
                                           const Item& item) {
#pragma unroll
    for (int p = 0; p < S::Pieces; ++p) {
        float4* to = sums_of<S>(args, item.tile, item.part, p);
#pragma unroll
        for (int i = 0; i < S::Tokens / 8; ++i) {
            __stcg(to + i * 32,
                   make_float4(sum[p][4 * i], sum[p][4 * i + 1], sum[p][4 * i + 2], sum[p][4 * i + 3]));
        }
    }
}

// Adds the stored parts of a piece in order.
template <class S>
__device__ __forceinline__ void load_parts(const PackedArgs& args, float (&sum)[S::Tokens / 2], i32 tile, int p) {
    for (i32 part = 0; part < args.parts; ++part) {
        const float4* from = sums_of<S>(args, tile, part, p);
#pragma unroll
        for (int i = 0; i < S::Tokens / 8; ++i) {
            const float4 v = __ldcg(from + i * 32);
            const float f[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                sum[4 * i + j] = part == 0 ? f[j] : __fadd_rn(sum[4 * i + j], f[j]);
            }
        }
    }
}

// Counts the parts that the warp has stored, a tile per lane. If they complete a tile, the warp adds all parts of its
// rows and writes the result. args.arrived has a counter per tile and warp.
template <class S>
__device__ __forceinline__ void count_parts(const PackedArgs& args, u32 group, u32 warp, u32 lane) {
    Walk<S> walk;
    walk.begin(args);
    if (walk.at == walk.end) {
        return;
    }
    __threadfence();
    __syncwarp();
    const i32 last = (walk.end - 1) / args.parts;
    for (i32 tiles = walk.at / args.parts; tiles <= last; tiles += 32) {
        const i32 mine = tiles + static_cast<i32>(lane);
        bool complete = false;
        if (mine <= last) {
            const i32 stored = min(walk.end, (mine + 1) * args.parts) - max(walk.at, mine * args.parts);
            u32* counter = args.arrived + mine * S::Warps + threadIdx.x / 32;
            complete = static_cast<i32>(atomicAdd(counter, static_cast<u32>(stored))) + stored == args.parts;
            if (complete) {
                *counter = 0;
            }
        }
        u32 remaining = __ballot_sync(ptx::kFullMask, complete);
        __threadfence();
#pragma unroll 1
        for (; remaining != 0; remaining &= remaining - 1) {
            const Item item = Walk<S>::item_of(args, (tiles + __ffs(static_cast<int>(remaining)) - 1) * args.parts);
#pragma unroll
            for (int p = 0; p < S::Pieces; ++p) {
                float sum[S::Tokens / 2];
                load_parts<S>(args, sum, item.tile, p);
                write<S>(args, sum, item, item.tile * S::Stripes + static_cast<i32>(group), warp + p, lane);
            }
        }
    }
}

template <class S>
__device__ __forceinline__ void multiply_trio(const PackedArgs& args) {
    static_assert(Table<typename S::F>::TableBytes == 0, "formats without a table");
    extern __shared__ __align__(128) u8 dynamic_shared[];
    FewStorage<S>& shared = *reinterpret_cast<FewStorage<S>*>(dynamic_shared);
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::Stages; ++i) {
            ptx::barrier_init(ptx::shared_address(&shared.full[i]), 1);
            ptx::barrier_init(ptx::shared_address(&shared.empty[i]), S::Warps);
        }
        ptx::barrier_init_fence();
    }
    __syncthreads();
    constexpr int kThreads = 128 / S::Pieces;  // of a stripe
    const u32 group = __shfl_sync(ptx::kFullMask, threadIdx.x / kThreads, 0), lane = threadIdx.x % 32;
    if (group == S::Groups) {
        feed_few<S>(args, shared, lane);
        return;
    }
    const u32 warp = threadIdx.x % kThreads / 32 * S::Pieces;
    Walk<S> walk;
    Cursor at;
    Item item;
    while (walk.next(shared, args, item)) {
        float sum[S::Pieces][S::Tokens / 2];
        const Span span = span_of(args, item.part);
        add_units<S, S::Tokens / 8>(shared, sum, span, item.count, at, 0, group, warp, lane);
        if (args.parts > 1) {
            store_part<S>(args, sum, item);
            continue;
        }
#pragma unroll
        for (int p = 0; p < S::Pieces; ++p) {
            write<S>(args, sum[p], item, item.tile * S::Stripes + static_cast<i32>(group), warp + p, lane);
        }
    }
    if (args.parts > 1) {
        count_parts<S>(args, group, warp, lane);
    }
}

}  // namespace sparrow_packed

#define PACKED_TRIO(Name, ...)                                                                              \
    extern "C" __global__ void __launch_bounds__(sparrow_packed::Trio<__VA_ARGS__>::Threads,                \
                                                 sparrow_packed::Trio<__VA_ARGS__>::Blocks)                 \
        sparrow_packed_##Name##_trio(const __grid_constant__ PackedArgs args) {                             \
        sparrow_packed::multiply_trio<sparrow_packed::Trio<__VA_ARGS__>>(args);                             \
    }                                                                                                       \
    extern "C" __device__ const u32 sparrow_packed_##Name##_trio_shared =                                   \
        sparrow_packed::few_shared_bytes<sparrow_packed::Trio<__VA_ARGS__>>();
