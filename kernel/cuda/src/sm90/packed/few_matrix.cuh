// Matrix products of up to 16 tokens with packed weights, for matrices with many tiles: out = x * weight transposed.
// Arguments are those of product.cuh, without experts, and results are bitwise equal.
//
// Block: persistent, one per SM. One warp copies. The other twelve have 32 weight rows each, so that the rows of the
//        tokens are fetched once for six stripes of 64 weight rows, and read once for 32 rows; all warps share a lookup
//        table. A block has consecutive items (Division below), stores the sums of its parts of k, and counts them
//        after its last item. A counter in global memory takes microseconds, so that counting each item would delay the
//        next.
// Bytes: weights are read once from memory, tokens once for six stripes from L2.
#pragma once

#include "sm90/packed/product.cuh"

namespace sparrow_packed {

template <class Format>
struct FewMatrix {
    using F = Format;
    using Room = FewRoom<F, 16, 1>;
    static constexpr int Tokens = 16, Stripes = 6, Listed = 1, Pieces = 2, Warps = 12, Threads = 32 * Warps + 32;
    static constexpr int Pitch = Room::Pitch, WeightBytes = Stripes * F::Bytes, StageBytes = Room::stage(Stripes);
    static constexpr int Limit = Room::limit(1), Stages = Room::stages(Stripes, 1);
    static_assert(Stages >= 3, "a ring of stages");
};

// Up to six stripes, and a part of k.
struct StripesItem {
    i32 first, stripes, part;
};

// How the work is divided. Stripes form groups of at most six whose sizes differ by at most one. There are as many
// groups as the blocks can process in the least number of rounds. An item is a group and a part of k; parts are the
// innermost index, so that most parts of a group belong to one block or two. A block has items begin to end - 1.
struct Division {
    i32 stripes, groups, parts, begin, end;

    __device__ __forceinline__ explicit Division(const PackedArgs& args) : parts(args.parts) {
        const i32 blocks = static_cast<i32>(gridDim.x), block = static_cast<i32>(blockIdx.x);
        stripes = (args.columns + 63) / 64;
        const i32 rounds = ((stripes + 5) / 6 * parts + blocks - 1) / blocks;
        groups = min(stripes, rounds * blocks / parts);
        begin = groups * parts * block / blocks, end = groups * parts * (block + 1) / blocks;
    }
    __device__ __forceinline__ i32 first_of(i32 group) const { return stripes * group / groups; }
    __device__ __forceinline__ StripesItem item(i32 i) const {
        const i32 group = i / parts, first = first_of(group);
        return {first, first_of(group + 1) - first, i - group * parts};
    }
};

// Starts the copy of the weights of a stage, a tile per lane. If the token rows end before the unit does, fills the
// rest with zeros.
template <class S>
__device__ __forceinline__ void copy_stripes(const PackedArgs& args, FewStorage<S>& shared, u32 stage,
                                             const StripesItem& item, i32 unit, u32 lane) {
    const u32 full = ptx::shared_address(&shared.full[stage]);
    const i32 n = Feed<S>::bytes(args, unit);
    if (n < S::F::K * 2 && static_cast<i32>(lane) < args.rows) {
        u8* to = shared.stages[stage] + S::WeightBytes + lane * S::Pitch;
        for (i32 i = n; i < S::F::K * 2; i += 16) {
            *reinterpret_cast<uint4*>(to + i) = make_uint4(0, 0, 0, 0);
        }
        ptx::fence_async_proxy();
    }
    __syncwarp();
    if (lane == 0) {
        ptx::barrier_expect(full, item.stripes * S::F::Bytes + args.rows * n);
    }
    __syncwarp();
    const i32 tile = item.first / kStripes + static_cast<i32>(lane);
    const i32 begin = max(item.first, tile * kStripes), end = min(item.first + item.stripes, (tile + 1) * kStripes);
    if (begin < end) {
        const i64 stripe = (static_cast<i64>(tile) * args.units + unit) * kStripes + begin % kStripes;
        ptx::load_bytes(ptx::shared_address(shared.stages[stage]) + (begin - item.first) * S::F::Bytes,
                        args.weights + stripe * S::F::Bytes, (end - begin) * S::F::Bytes, full, ptx::kEvictFirst);
    }
}

template <class S>
__device__ __forceinline__ void feed_stripes(const PackedArgs& args, FewStorage<S>& shared, u32 lane) {
    const Division division(args);
    Cursor at;
    i32 primed = 0;  // weights were written before the previous kernel started, so their copies need not wait for it
    if (division.begin < division.end) {
        const StripesItem item = division.item(division.begin);
        const Span span = span_of(args, item.part);
        for (; primed < min(S::Stages, span.end - span.begin); ++primed) {
            copy_stripes<S>(args, shared, primed, item, span.begin + primed, lane);
        }
    }
    ptx::wait_for_previous_kernel();
    ptx::release_next_kernel();
    const u8* row = args.x + static_cast<i32>(lane) * args.x_pitch;
    for (i32 i = division.begin; i < division.end; ++i) {
        const StripesItem item = division.item(i);
        const Span span = span_of(args, item.part);
        for (i32 unit = span.begin; unit < span.end; ++unit) {
            if (primed-- <= 0) {
                ptx::barrier_wait(ptx::shared_address(&shared.empty[at.stage]), at.parity ^ 1);
                copy_stripes<S>(args, shared, at.stage, item, unit, lane);
            }
            const i32 n = Feed<S>::bytes(args, unit);
            if (static_cast<i32>(lane) < args.rows && n > 0) {
                ptx::load_bytes(ptx::shared_address(shared.stages[at.stage]) + S::WeightBytes + lane * S::Pitch,
                                row + unit * (S::F::K * 2), n, ptx::shared_address(&shared.full[at.stage]),
                                ptx::kEvictNormal);
            }
            at.advance(S::Stages);
        }
    }
}

// Returns the place of a lane's first four sums of a part of 16 weight rows, with the given number of sets of eight
// tokens. The sums of the next set are 32 places further.
__device__ __forceinline__ float4* sums_of(const PackedArgs& args, i32 piece, i32 part, i32 eights, u32 lane) {
    const i64 place = static_cast<i64>(piece) * args.parts + part;
    return reinterpret_cast<float4*>(args.sums) + place * (eights * 32) + lane;
}

template <int N>
__device__ __forceinline__ void store_part(const PackedArgs& args, const float (&sum)[N], i32 piece, i32 part,
                                           i32 eights, u32 lane) {
    float4* to = sums_of(args, piece, part, eights, lane);
#pragma unroll
    for (int i = 0; i < N / 4; ++i) {
        if (i < eights) {
            __stcg(to + i * 32, make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]));
        }
    }
}

// Adds the stored parts of a piece in order.
template <int N>
__device__ __forceinline__ void load_parts(const PackedArgs& args, float (&sum)[N], i32 piece, i32 eights, u32 lane) {
    for (i32 part = 0; part < args.parts; ++part) {
        const float4* from = sums_of(args, piece, part, eights, lane);
#pragma unroll
        for (int i = 0; i < N / 4; ++i) {
            const float4 v = i < eights ? __ldcg(from + i * 32) : make_float4(0, 0, 0, 0);
            const float f[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                sum[4 * i + j] = part == 0 ? f[j] : __fadd_rn(sum[4 * i + j], f[j]);
            }
        }
    }
}

// Counts the parts that the warp has stored, a group of stripes per lane. If they complete the warp's 32 rows of a
// group, the warp adds all their parts and writes the result. args.arrived has a counter for each 32 rows.
template <class S>
__device__ __forceinline__ void count_parts(const PackedArgs& args, const Division& division, i32 stripe, u32 warp,
                                            i32 eights, u32 lane) {
    if (division.begin == division.end) {
        return;
    }
    __threadfence();
    __syncwarp();
    const i32 parts = args.parts, last = (division.end - 1) / parts;
    for (i32 group = division.begin / parts; group <= last; group += 32) {
        const i32 mine = group + static_cast<i32>(lane), first = division.first_of(mine);
        bool complete = false;
        if (mine <= last && first + stripe < division.first_of(mine + 1)) {
            const i32 stored = min(division.end, (mine + 1) * parts) - max(division.begin, mine * parts);
            u32* counter = args.arrived + (first + stripe) * 2 + warp / S::Pieces;
            complete = static_cast<i32>(atomicAdd(counter, static_cast<u32>(stored))) + stored == parts;
            if (complete) {
                *counter = 0;
            }
        }
        u32 remaining = __ballot_sync(ptx::kFullMask, complete);
        __threadfence();
#pragma unroll 1
        for (; remaining != 0; remaining &= remaining - 1) {
            const i32 at = division.first_of(group + __ffs(static_cast<int>(remaining)) - 1) + stripe;
#pragma unroll
            for (int p = 0; p < S::Pieces; ++p) {
                float sum[S::Tokens / 2];
                load_parts(args, sum, at * 4 + static_cast<i32>(warp) + p, eights, lane);
                write<S>(args, sum, Item{0, 0, 0, args.rows, 0, 0}, at, warp + p, lane);
            }
        }
    }
}

template <class S>
__device__ __forceinline__ void multiply_few_matrix(const PackedArgs& args) {
    extern __shared__ __align__(128) u8 dynamic_shared[];
    FewStorage<S>& shared = *reinterpret_cast<FewStorage<S>*>(dynamic_shared);
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::Stages; ++i) {
            ptx::barrier_init(ptx::shared_address(&shared.full[i]), 1);
            ptx::barrier_init(ptx::shared_address(&shared.empty[i]), S::Warps);
        }
        ptx::barrier_init_fence();
    }
    Table<typename S::F>::fill(shared.table, threadIdx.x, S::Threads);
    __syncthreads();
    const u32 stripe = __shfl_sync(ptx::kFullMask, threadIdx.x / 64, 0), lane = threadIdx.x % 32;
    if (stripe == S::Stripes) {
        feed_stripes<S>(args, shared, lane);
        return;
    }
    const u32 warp = threadIdx.x % 64 / 32 * S::Pieces;  // number of the first piece of 16 rows in the stripe
    const u32 table = Table<typename S::F>::of_lane(ptx::shared_address(shared.table), lane);
    const i32 eights = (args.rows + 7) / 8;
    const Division division(args);
    Cursor at;
    for (i32 i = division.begin; i < division.end; ++i) {
        const StripesItem item = division.item(i);
        const Span span = span_of(args, item.part);
        if (static_cast<i32>(stripe) >= item.stripes) {
            for (i32 unit = span.begin; unit < span.end; ++unit) {
                ptx::barrier_wait(ptx::shared_address(&shared.full[at.stage]), at.parity);
                sparrow_tile::arrive_warp(ptx::shared_address(&shared.empty[at.stage]));
                at.advance(S::Stages);
            }
            continue;
        }
        float sum[S::Pieces][S::Tokens / 2];
        if (eights == 2) {
            add_units<S, 2>(shared, sum, span, args.rows, at, table, stripe, warp, lane);
        } else {
            add_units<S, 1>(shared, sum, span, args.rows, at, table, stripe, warp, lane);
        }
        const i32 row = item.first + static_cast<i32>(stripe);
#pragma unroll
        for (int p = 0; p < S::Pieces; ++p) {
            if (args.parts > 1) {
                store_part(args, sum[p], row * 4 + static_cast<i32>(warp) + p, item.part, eights, lane);
            } else {
                write<S>(args, sum[p], Item{0, 0, 0, args.rows, 0, 0}, row, warp + p, lane);
            }
        }
    }
    if (args.parts > 1) {
        count_parts<S>(args, division, static_cast<i32>(stripe), warp, eights, lane);
    }
}

}  // namespace sparrow_packed

#define PACKED_FEW_MATRIX(Name, ...)                                                                       \
    extern "C" __global__ void __launch_bounds__(sparrow_packed::FewMatrix<__VA_ARGS__>::Threads, 1)       \
        sparrow_packed_##Name##_few_matrix(const __grid_constant__ PackedArgs args) {                      \
        sparrow_packed::multiply_few_matrix<sparrow_packed::FewMatrix<__VA_ARGS__>>(args);                 \
    }                                                                                                      \
    extern "C" __device__ const u32 sparrow_packed_##Name##_few_matrix_shared =                            \
        sparrow_packed::few_shared_bytes<sparrow_packed::FewMatrix<__VA_ARGS__>>();
