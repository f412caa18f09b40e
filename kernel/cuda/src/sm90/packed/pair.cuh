// Matrix products of many rows with packed weights: the two thread blocks of a cluster use the same tokens.
//
// In:    as in product.cuh, for one matrix, not for experts.
// Out:   as in product.cuh, bitwise equal.
// Block: 384 threads, one per SM, two in a cluster. The two thread blocks have the two halves of a tile of 256 weight
//        rows and the same 256 tokens; each issues multicast copies of 128 of the tokens to both. One thread issues the
//        copies; two warpgroups widen 64 weight rows each and multiply them by all tokens. The sums of earlier parts of
//        k are kept in global memory.
// Bytes: from L2, per 64 columns of k and thread block, 128 tokens and 128 weight rows: half of the tokens that a
//        thread block without a partner fetches.
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/peer.cuh"
#include "sm90/packed/product.cuh"

struct alignas(64) PackedPairArgs {
    TensorMap x_map;  // bf16 [1, rows, k], boxes of 128 rows by 64 columns
    PackedArgs base;
};

namespace sparrow_packed {

template <class Format>
struct Pair {
    using F = Format;
    static constexpr int Tokens = 256, Groups = 2, Stripes = 4;  // stripes of both thread blocks
    static constexpr bool Whole = true;
    static constexpr int Columns = 64, InputBytes = Tokens * Columns * 2, WeightBytes = Groups * F::Bytes;
    static constexpr int Inputs = 5, Threads = 384;
    static constexpr int Fit = (sparrow_tile::kSharedLimit - 1024 - 512 - Inputs * InputBytes) / WeightBytes;
    static constexpr int Weights = Fit < 12 ? Fit : 12;
    static_assert(Weights >= 2 && Table<F>::TableBytes == 0, "a ring of stages, no table");
};

template <class S>
struct PairStorage {
    u8 inputs[S::Inputs][S::InputBytes];  // first member, because swizzled tiles must be aligned to 1024 bytes
    alignas(128) u8 weights[S::Weights][S::WeightBytes];
    u64 inputs_full[S::Inputs], inputs_empty[S::Inputs], weights_full[S::Weights], weights_empty[S::Weights];
};

template <class S>
constexpr u32 pair_shared_bytes() {
    static_assert(sizeof(PairStorage<S>) + 1024 <= sparrow_tile::kSharedLimit, "more than a Hopper block can have");
    return sizeof(PairStorage<S>) + 1024;
}

// Iterates over the items of a cluster: for each band of kBandTokens tokens, all weight tiles.
struct PairWalk {
    i32 next, step, count, groups, tiles;

    __device__ __forceinline__ explicit PairWalk(const PackedArgs& args)
        : next(static_cast<i32>(blockIdx.x) / 2), step(static_cast<i32>(gridDim.x) / 2),
          groups((args.rows + 255) / 256), tiles(args.tiles) {
        count = groups * tiles;
    }
    __device__ __forceinline__ bool more() const { return next < count; }
    __device__ __forceinline__ Item item(const PackedArgs& args) const {
        constexpr i32 kBand = kBandTokens / 256;
        const i32 band = next / (kBand * tiles), inside = next - band * kBand * tiles;
        const i32 width = min(kBand, groups - band * kBand), tile = inside / width;
        const i32 first = (band * kBand + inside - tile * width) * 256;
        return {0, tile, first, min(256, args.rows - first), 0, 0};
    }
};

// The copies of weights and inputs to the rings, issued by one thread of each thread block.
template <class S>
__device__ __forceinline__ void feed_pair(const PackedPairArgs& pair, PairStorage<S>& shared, u32 rank) {
    const PackedArgs& args = pair.base;
    Cursor inputs, units;
    ptx::wait_for_previous_kernel();
#pragma unroll 1
    for (PairWalk walk(args); walk.more(); walk.next += walk.step) {
        const Item item = walk.item(args);
        const i64 stripe = static_cast<i64>(item.tile) * args.units * kStripes + 2 * rank;
        const u8* weights = args.weights + stripe * S::F::Bytes;
#pragma unroll 1
        for (i32 unit = 0; unit < args.units; ++unit) {
            ptx::barrier_wait(ptx::shared_address(&shared.weights_empty[units.stage]), units.parity ^ 1);
            const u32 arrived = ptx::shared_address(&shared.weights_full[units.stage]);
            ptx::barrier_expect(arrived, S::WeightBytes);
            ptx::load_bytes(ptx::shared_address(shared.weights[units.stage]),
                            weights + static_cast<i64>(unit) * (kStripes * S::F::Bytes), S::WeightBytes, arrived,
                            ptx::kEvictNormal);
            units.advance(S::Weights);
#pragma unroll 1
            for (i32 piece = 0; piece < S::F::K / S::Columns; ++piece) {
                ptx::barrier_wait(ptx::shared_address(&shared.inputs_empty[inputs.stage]), inputs.parity ^ 1);
                const u32 full = ptx::shared_address(&shared.inputs_full[inputs.stage]);
                ptx::barrier_expect(full, S::InputBytes);
                ptx::load_3d_multicast(ptx::shared_address(shared.inputs[inputs.stage]) + rank * (S::InputBytes / 2),
                                       &pair.x_map, full, unit * S::F::K + piece * S::Columns,
                                       item.first + static_cast<i32>(rank) * 128, 0, 3, ptx::kEvictNormal);
                inputs.advance(S::Inputs);
            }
        }
    }
    ptx::release_next_kernel();
}

// Sums the products of the units of a span, starting at zero.
template <class S>
__device__ __forceinline__ void add_pair_span(PairStorage<S>& shared, float (&sum)[S::Tokens / 2], const Span& span,
                                              Rings& at, u32 group, u32 warp, u32 lane) {
    constexpr int kBatches = S::F::K / 64;
    static_assert(kBatches % 2 == 0, "two sets of operands in turn");
    // A warp of each thread block arrives at inputs_empty of both thread blocks, because a multicast copy overwrites
    // both.
    const auto release = [&](i32 stage) {
        __syncwarp();
        if (lane < 2) {
            ptx::peer_arrive(ptx::peer_address(ptx::shared_address(&shared.inputs_empty[stage]), lane));
        }
    };
    u32 a[2][4][4];
    i32 before = -1;  // stage of inputs that the products in flight still read; -1: none
    float2 fractions = make_float2(1, 1);
    begin_sums<typename S::F>(sum);
    for (i32 unit = span.begin; unit < span.end; ++unit) {
        ptx::barrier_wait(ptx::shared_address(&shared.weights_full[at.units.stage]), at.units.parity);
        typename S::F format = unit_of<typename S::F>(
            ptx::shared_address(shared.weights[at.units.stage]) + group * S::F::Bytes, 0, warp, lane);
#pragma unroll
        for (int b = 0; b < kBatches; ++b) {
            convert(format, a[b % 2], b, sum, fractions);
            if (b == kBatches - 1) {  // the codes of the unit are in registers
                sparrow_tile::arrive_warp(ptx::shared_address(&shared.weights_empty[at.units.stage]));
                at.units.advance(S::Weights);
            }
            ptx::barrier_wait(ptx::shared_address(&shared.inputs_full[at.inputs.stage]), at.inputs.parity);
            const u64 inputs = ptx::operand_128b(ptx::shared_address(shared.inputs[at.inputs.stage]));
            ptx::mma_fence();
#pragma unroll
            for (int s = 0; s < 4; ++s) {
                ptx::Held<S::Tokens>::run(sum, a[b % 2][s], inputs + 2 * s, unit > span.begin || b > 0 || s > 0);
            }
            ptx::mma_commit();
            ptx::mma_wait<1>();  // the operands of the previous batch may be overwritten
            if (before >= 0) {
                release(before);
            }
            before = static_cast<i32>(at.inputs.stage);
            at.inputs.advance(S::Inputs);
        }
    }
    end_sums<typename S::F>(sum, fractions);
    if (before >= 0) {
        release(before);
    }
}

// Adds the sums of the earlier parts, which this thread has written to global memory, to sum. Writes the new sum there
// unless this part is the last.
template <int N>
__device__ __forceinline__ void add_own_parts(const PackedArgs& args, float (&sum)[N], bool first, bool last) {
    constexpr int kFours = N / 4, kThreads = 256;
    float4* own =
        reinterpret_cast<float4*>(args.sums) + static_cast<i64>(blockIdx.x) * (kFours * kThreads) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
        float* v = sum + 4 * i;
        if (!first) {
            const float4 before = __ldcg(own + i * kThreads);
            v[0] = __fadd_rn(before.x, v[0]), v[1] = __fadd_rn(before.y, v[1]);
            v[2] = __fadd_rn(before.z, v[2]), v[3] = __fadd_rn(before.w, v[3]);
        }
        if (!last) {
            __stcg(own + i * kThreads, make_float4(v[0], v[1], v[2], v[3]));
        }
    }
}

template <class S>
__device__ __forceinline__ void multiply_pair(const PackedPairArgs& pair) {
    extern __shared__ u8 dynamic_shared[];
    const u32 misaligned = ptx::shared_address(dynamic_shared) % 1024;
    PairStorage<S>& shared =
        *reinterpret_cast<PairStorage<S>*>(dynamic_shared + (misaligned ? 1024 - misaligned : 0));
    const PackedArgs& args = pair.base;
    const u32 rank = ptx::cluster_rank(), thread = threadIdx.x;
    if (thread == 0) {
        ptx::prefetch_map(&pair.x_map);
        for (int i = 0; i < S::Inputs; ++i) {
            ptx::barrier_init(ptx::shared_address(&shared.inputs_full[i]), 1);
            ptx::barrier_init(ptx::shared_address(&shared.inputs_empty[i]), 2 * 4 * S::Groups);
        }
        for (int i = 0; i < S::Weights; ++i) {
            ptx::barrier_init(ptx::shared_address(&shared.weights_full[i]), 1);
            ptx::barrier_init(ptx::shared_address(&shared.weights_empty[i]), 4 * S::Groups);
        }
        ptx::barrier_init_fence();
    }
    ptx::cluster_sync();
    const u32 group = __shfl_sync(ptx::kFullMask, thread / 128, 0);
    if (group == S::Groups) {
        ptx::registers_shrink<40>();
        if (thread == 128 * S::Groups) {
            feed_pair<S>(pair, shared, rank);
        }
        __syncwarp();
    } else {
        ptx::registers_grow<232>();
        const u32 warp = thread % 128 / 32, lane = thread % 32;
        Rings ring;
#pragma unroll 1
        for (PairWalk walk(args); walk.more(); walk.next += walk.step) {
            const Item item = walk.item(args);
            float sum[S::Tokens / 2];
#pragma unroll 1
            for (i32 part = 0; part < args.parts; ++part) {
                add_pair_span<S>(shared, sum, span_of(args, part), ring, group, warp, lane);
                add_own_parts(args, sum, part == 0, part == args.parts - 1);
            }
            write<S>(args, sum, item, item.tile * kStripes + static_cast<i32>(2 * rank + group), warp, lane);
        }
    }
    ptx::cluster_sync();  // until then, the other thread block may copy to this block and arrive at its barriers
}

}  // namespace sparrow_packed

#define PACKED_PAIR(Name, ...)                                                                                  \
    extern "C" __global__ void __launch_bounds__(384, 1)                                                        \
        sparrow_packed_##Name##_pair(const __grid_constant__ PackedPairArgs args) {                             \
        sparrow_packed::multiply_pair<sparrow_packed::Pair<__VA_ARGS__>>(args);                                 \
    }                                                                                                           \
    extern "C" __device__ const u32 sparrow_packed_##Name##_pair_shared =                                       \
        sparrow_packed::pair_shared_bytes<sparrow_packed::Pair<__VA_ARGS__>>();
