// Matrix products of few rows, limited by weight bandwidth.
//
// In:    weight e4m3 or bf16 [batch, columns, k]; input of the same type [batch, rows, k], few rows; scales (args.h).
// Out:   bf16 or f32 [rows, batch, columns].
// Block: 64 * Groups weight rows are the rows of the tensor-core tile, and N input rows its columns. One warp issues
//        copies into a ring of stages (a stage is a block of k: weights and inputs); Groups warpgroups multiply. The
//        scales of all inputs are loaded first. e4m3 has two sets of accumulators, so that the products of a block
//        run while the previous block is scaled and added. If k has one part, blocks are persistent, except for a
//        batch in e4m3, whose inputs have separate scales for each element of the batch. If k has several parts, the
//        parts of a tile form a cluster, and the sums for each 8 input rows are combined in the shared memory of one
//        member. Weights do not depend on the previous kernel, so the first stages are filled with weights before
//        waiting for that kernel.
// Bytes: weights are read once from memory; inputs once per tile from L2.
// H200:  one row, 7168 x 16384 e4m3: 31.8 us, 86 % of 4.3 TB/s; output head of 129280 x 7168 bf16: 430 us, 100 %;
//        2112 x 7168 e4m3, 15 MB: 7.2 us, 49 %. 64 rows of these three: 33.8, 473 and 10.7 us.
#pragma once

#include "sm90/product/config.h"

namespace sparrow_product {

// How 64 weight rows are stored in a stage: as rows of an operand or, if Held, as e2m1 codes that are widened to an
// operand in registers.
template <class T>
struct FewWeights {
    static constexpr bool Held = false;
    static constexpr int StripeBytes = 64 * kBlockBytes, RoomBytes = StripeBytes;
};

// Turned: the 64 inputs are the rows of the tensor-core tile, and TurnedRows weight rows per warpgroup its columns. A
// lane then needs the scales of two inputs instead of 16. k has one part.
template <class T, int Inputs, int WeightGroups, int TurnedRows = 0>
struct FewShape {
    using Type = T;
    static constexpr int N = Inputs, Groups = WeightGroups;
    static constexpr bool Turned = TurnedRows > 0;
    static constexpr int GroupRows = Turned ? TurnedRows : 64;  // weight rows per warpgroup
    static constexpr int Rows = GroupRows * Groups;      // weight rows per tile
    static constexpr int Sums = Turned ? GroupRows / 2 : N / 2;  // sums per lane
    static constexpr bool Held = FewWeights<T>::Held;
    static constexpr int WeightBytes = Held ? Groups * FewWeights<T>::RoomBytes : Rows * kBlockBytes;
    static constexpr int InputBytes = N * kBlockBytes;
    static constexpr int StageBytes = WeightBytes + InputBytes;
    static constexpr int ScaleBytes = T::Scaled ? N * 4 : 0;  // input scales of a block of k
    static constexpr int Eights = N / 8;                      // groups of 8 input rows
    static constexpr int Threads = 128 * Groups + 32;
    static constexpr int SumBytes = Groups * 2048;        // sums of a part for a group of 8 input rows
    // bf16 results of a warp: 16 columns of N input rows.
    static constexpr int OutBytes = Turned ? 0 : 4 * Groups * N * 32;
    static_assert(!Turned || (N == 64 && 128 % GroupRows == 0), "64 input rows, and one scale of the weight");
    static_assert(N % 8 == 0 && StageBytes % 1024 == 0, "stages are whole swizzle atoms");
};

constexpr int kScaleBox = 8;  // blocks of k whose input scales one copy loads

// Shared memory holds the ring of stages, results, barriers, the scales of the inputs [blocks of the part, in whole
// boxes][N] and, if k has several parts, their sums.
struct FewBarriers {
    u64 full[kMaxStages], empty[kMaxStages];
    u64 sums, scales;
};

template <class S>
struct FewPlaces {
    u32 ring, out, barriers, scales, sums;

    // The places are equal in all blocks of a cluster, also if the last part of k is shorter: the blocks store sums in
    // each other's shared memory.
    __device__ __forceinline__ explicit FewPlaces(const ProductArgs& args) {
        const i32 each = (args.blocks + args.parts - 1) / args.parts;
        extern __shared__ u8 dynamic_shared[];
        ring = (ptx::shared_address(dynamic_shared) + 1023) / 1024 * 1024;
        out = ring + args.stages * S::StageBytes;
        barriers = out + S::OutBytes;
        scales = (barriers + sizeof(FewBarriers) + 127) / 128 * 128;
        sums = scales + (each + kScaleBox - 1) / kScaleBox * (kScaleBox * S::ScaleBytes);
    }
    __device__ __forceinline__ u32 weights(u32 stage) const { return ring + stage * S::StageBytes; }
    __device__ __forceinline__ u32 inputs(u32 stage) const { return weights(stage) + S::WeightBytes; }
    __device__ __forceinline__ u32 full(u32 stage) const { return barriers + stage * 8; }
    __device__ __forceinline__ u32 empty(u32 stage) const { return barriers + (kMaxStages + stage) * 8; }
    __device__ __forceinline__ u32 sums_arrived() const { return barriers + 2 * kMaxStages * 8; }
    __device__ __forceinline__ u32 scales_arrived() const { return barriers + (2 * kMaxStages + 1) * 8; }
};

// Returns the part of k of this thread block, which is its rank in the cluster. The rank is computed from blockIdx,
// because the compiler treats blockIdx as uniform over the lanes and keeps derived values in uniform registers; it does
// not do so with the cluster rank.
__device__ __forceinline__ u32 part_of(const ProductArgs& args) {
    return blockIdx.x % static_cast<u32>(args.parts);
}

// A tile of the result: its first column (weight row), its first input row, and the element of the batch.
struct FewTile {
    i32 column, row, batch;
};

// The tiles of a thread block, in order. If k has several parts, a thread block has one tile; there may be several
// tiles of input rows, and tiles of the same weights are adjacent. If k has one part, one tile has all input rows.
template <class S>
struct FewTiles {
    i32 next, step, count, input_tiles;
    Divisor weight_tiles;

    __device__ __forceinline__ explicit FewTiles(const ProductArgs& args)
        : weight_tiles((args.columns + S::Rows - 1) / S::Rows) {
        input_tiles = args.parts > 1 ? (args.rows + S::N - 1) / S::N : 1;
        next = static_cast<i32>(blockIdx.x) / args.parts;
        step = static_cast<i32>(gridDim.x) / args.parts;
        count = weight_tiles.by * args.batch * input_tiles;
    }
    __device__ __forceinline__ bool more() const { return next < count; }
    __device__ __forceinline__ FewTile tile() const {
        const i32 weights = input_tiles == 1 ? next : next / input_tiles, batch = weight_tiles.divide(weights);
        return {(weights - batch * weight_tiles.by) * S::Rows, (next - weights * input_tiles) * S::N, batch};
    }
};

// Iterates over the blocks of k of all tiles, in the order in which they are loaded.
template <class S>
struct FewWalk {
    FewTiles<S> tiles;
    Span span;
    i32 block;
    FewTile tile;

    __device__ __forceinline__ FewWalk(const ProductArgs& args, Span s)
        : tiles(args), span(s), block(s.begin), tile(tiles.tile()) {}
    __device__ __forceinline__ bool more() const { return tiles.more(); }
    __device__ __forceinline__ void advance() {
        if (++block == span.end) {
            block = span.begin;
            tiles.next += tiles.step;
            tile = tiles.tile();
        }
    }
};

template <class S>
__device__ __forceinline__ void ask_weights(const ProductArgs& args, const FewPlaces<S>& at, const FewWalk<S>& walk,
                                            u32 stage) {
    // Only the args.copied input rows that exist are copied, because copies of missing rows take time.
    if constexpr (S::Held) {
        static_assert(S::Groups == 1, "a stripe of 64 rows");
        ptx::barrier_expect(at.full(stage), FewWeights<typename S::Type>::StripeBytes + args.copied * kBlockBytes);
        const i64 tile = static_cast<i64>(walk.tile.column / 256) * args.blocks + walk.block;
        const i64 stripe = tile * 4 + walk.tile.column / 64 % 4;
        constexpr u32 kBytes = FewWeights<typename S::Type>::StripeBytes;
        ptx::load_bytes(at.weights(stage), args.folded + stripe * kBytes, kBytes, at.full(stage), ptx::kEvictFirst);
    } else {
        ptx::barrier_expect(at.full(stage), S::StageBytes);
        ptx::load_3d(at.weights(stage), &args.weight_map, at.full(stage), walk.block * S::Type::BlockColumns,
                     walk.tile.column, walk.tile.batch, ptx::kEvictFirst);
    }
}

template <class S>
__device__ __forceinline__ void ask_inputs(const ProductArgs& args, const FewPlaces<S>& at, const FewWalk<S>& walk,
                                           u32 stage) {
    ptx::load_3d(at.inputs(stage), &args.input_map, at.full(stage), walk.block * S::Type::BlockColumns, walk.tile.row,
                 walk.tile.batch, ptx::kEvictLast);
}

// Issues the copies of the input scales for all blocks of the part. The last box may extend beyond the blocks.
template <class S>
__device__ __forceinline__ void ask_scales(const ProductArgs& args, const FewPlaces<S>& at, Span span,
                                           const FewTile& tile) {
    constexpr u32 kBoxBytes = kScaleBox * S::ScaleBytes;
    const u32 boxes = (span.end - span.begin + kScaleBox - 1) / kScaleBox;
    ptx::barrier_expect(at.scales_arrived(), boxes * kBoxBytes);
#pragma unroll 1
    for (u32 i = 0; i < boxes; ++i) {
        ptx::load_2d(at.scales + i * kBoxBytes, &args.scale_map, at.scales_arrived(), tile.row,
                     tile.batch * args.blocks + span.begin + i * kScaleBox, ptx::kEvictLast);
    }
}

// The copy thread, after it has issued the first weights: first loads the inputs of those stages, then weights and
// inputs of the following blocks of k. If the copies of inputs were issued after a whole ring of weights, the inputs
// would arrive after all these weights.
template <class S>
__device__ __forceinline__ void feed(const ProductArgs& args, const FewPlaces<S>& at, FewWalk<S> walk, Span span) {
    const u32 stages = args.stages;
    wait_for_inputs(args);
    if (args.leads != 0) {
        ptx::release_next_kernel();
    }
    FewWalk<S> first(args, span);
#pragma unroll 1
    for (u32 s = 0; s < static_cast<u32>(args.ahead) && first.more(); ++s, first.advance()) {
        ask_inputs(args, at, first, s);
        if constexpr (S::Type::Scaled) {
            if (s == 0) {
                ask_scales(args, at, span, first.tile);
            }
        }
    }
    Cursor ring{static_cast<u32>(args.ahead) - 1, 0};
    ring.advance(stages);
#pragma unroll 1
    for (; walk.more(); walk.advance()) {
        ptx::barrier_wait(at.empty(ring.stage), ring.parity ^ 1);
        ask_weights(args, at, walk, ring.stage);
        ask_inputs(args, at, walk, ring.stage);
        ring.advance(stages);
    }
    ptx::release_next_kernel();  // the weights of the next kernel are then loaded after all weights of this kernel
    end_after_previous(args);
}

// A math warpgroup: GroupRows weight rows of each tile.
template <class S>
struct FewMath {
    static constexpr int N = S::N, Sums = S::Sums;

    const ProductArgs& args;
    const FewPlaces<S> at;
    const Span span;
    const i32 group;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    Cursor ask, done;  // ask: stage whose products are issued next; done: stage whose products complete next
    WeightScales scales;
    u32 table = 0;  // Held: address of the table of e4m3 codes in shared memory

    __device__ __forceinline__ FewMath(const ProductArgs& a, const FewPlaces<S>& p, Span s, i32 g)
        : args(a), at(p), span(s), group(g) {}

    __device__ __forceinline__ void ask_products(float (&d)[Sums], bool go_on) {
        ptx::barrier_wait(at.full(ask.stage), ask.parity);
        const u32 weights = at.weights(ask.stage) + group * S::GroupRows * kBlockBytes;
        if constexpr (S::Held) {
            FewWeights<typename S::Type>::template ask<N>(d, weights, at.inputs(ask.stage), warp, lane, table);
        } else if constexpr (S::Turned) {
            ask_block<typename S::Type, S::GroupRows>(d, at.inputs(ask.stage), weights, go_on);
        } else {
            ask_block<typename S::Type, N>(d, weights, at.inputs(ask.stage), go_on);
        }
        ask.advance(args.stages);
    }

    __device__ __forceinline__ void free_stage() {
        arrive_warp(at.empty(done.stage));
        done.advance(args.stages);
    }

    // Waits until at most Pending groups of products are incomplete, releases the stage of the completed group, and
    // adds its products times the scales of block i of the part to sum.
    template <int Pending>
    __device__ __forceinline__ void promote(float (&sum)[Sums], float (&d)[Sums], i32 i) {
        const float weight = scales.at(i);
        // Input scale * weight scale: for the lane's two input rows, or for two in each group of 8.
        float factor[S::Turned ? 2 : N / 4];
        if constexpr (S::Turned) {
            const u32 inputs = at.scales + i * S::ScaleBytes + (warp * 16 + lane / 4) * 4;
            factor[0] = __fmul_rn(ptx::load_float(inputs), weight);
            factor[1] = __fmul_rn(ptx::load_float(inputs + 32), weight);
        } else {
            const u32 inputs = at.scales + i * S::ScaleBytes + lane % 4 * 8;
#pragma unroll
            for (int e = 0; e < S::Eights; ++e) {
                const float2 pair = ptx::load_pair(inputs + e * 32);
                factor[2 * e] = __fmul_rn(pair.x, weight);
                factor[2 * e + 1] = __fmul_rn(pair.y, weight);
            }
        }
        ptx::mma_wait<Pending>();
        ptx::mma_pin(d);
        free_stage();
#pragma unroll
        for (int i = 0; i < Sums; ++i) {
            sum[i] = __fmaf_rn(factor[S::Turned ? i / 2 % 2 : i / 4 * 2 + i % 2], d[i], sum[i]);
        }
    }

    __device__ __forceinline__ const float* scale_row(const FewTile& tile) const {
        const i32 last = (args.columns - 1) / kScaleRows;
        const i32 row = min((tile.column + group * S::GroupRows) / kScaleRows, last);
        return args.weight_scales + static_cast<i64>(tile.batch * (last + 1) + row) * args.blocks + span.begin;
    }

    // Computes the sum of a part for a tile in e4m3, with two sets of accumulators.
    __device__ __forceinline__ void sum_scaled(float (&sum)[Sums]) {
        float d0[Sums], d1[Sums];
        const i32 count = span.end - span.begin;
#pragma unroll
        for (int i = 0; i < Sums; ++i) {
            sum[i] = 0;
        }
        ask_products(d0, false);
        i32 i = 1;
#pragma unroll 1
        for (; i + 1 < count; i += 2) {
            ask_products(d1, false);
            promote<1>(sum, d0, i - 1);
            ask_products(d0, false);
            promote<1>(sum, d1, i);
        }
        if (i < count) {
            ask_products(d1, false);
            promote<1>(sum, d0, i - 1);
            promote<0>(sum, d1, i);
        } else {
            promote<0>(sum, d0, i - 1);
        }
    }

    // Computes the sum of a part for a tile in bf16.
    __device__ __forceinline__ void sum_plain(float (&sum)[Sums]) {
        const i32 count = span.end - span.begin;
        ask_products(sum, false);
#pragma unroll 1
        for (i32 i = 1; i < count; ++i) {
            ask_products(sum, true);
            ptx::mma_wait<1>();
            free_stage();
        }
        ptx::mma_wait<0>();
        ptx::mma_pin(sum);
        free_stage();
    }

    // Returns the rank in the cluster of the thread block that adds the parts of a group of 8 input rows.
    __device__ __forceinline__ u32 owner_of(u32 eight) const { return eight % static_cast<u32>(args.parts); }

    // Sends the sums of this part to the thread blocks that own them, and adds the parts of the groups that this one
    // owns.
    __device__ __forceinline__ void add_parts(float (&sum)[Sums]) {
        const u32 parts = args.parts, rank = part_of(args);
        const u32 mine = at.sums + (group * 128 + threadIdx.x % 128) * 16;
        const auto place = [&](u32 eight, u32 part) { return (eight / parts * parts + part) * S::SumBytes; };
        ptx::cluster_wait();
#pragma unroll
        for (int e = 0; e < S::Eights; ++e) {
            const u32 owner = owner_of(e);
            const uint4 v = make_uint4(__float_as_uint(sum[4 * e]), __float_as_uint(sum[4 * e + 1]),
                                       __float_as_uint(sum[4 * e + 2]), __float_as_uint(sum[4 * e + 3]));
            ptx::peer_send(ptx::peer_address(mine + place(e, rank), owner), v,
                           ptx::peer_address(at.sums_arrived(), owner));
        }
        if (rank >= S::Eights) {
            return;
        }
        ptx::barrier_wait(at.sums_arrived(), 0);
#pragma unroll
        for (int e = 0; e < S::Eights; ++e) {
            if (owner_of(e) == rank) {
                for (u32 part = 0; part < parts; ++part) {
                    const uint4 v = ptx::load_vector(mine + place(e, part));
                    const float f[4] = {__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z),
                                        __uint_as_float(v.w)};
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        sum[4 * e + i] = part == 0 ? f[i] : __fadd_rn(sum[4 * e + i], f[i]);
                    }
                }
            }
        }
    }

    // Writes the groups of 8 input rows that this thread block owns. A warp has 16 columns of the result.
    __device__ __forceinline__ void write(float (&sum)[Sums], const FewTile& tile) {
        const u32 rank = part_of(args);
        const i32 column = tile.column + group * 64 + warp * 16;
        if (S::Type::Scaled && args.factors != nullptr) {
            const float* own = args.factors + min(column, args.columns - 16) + lane / 4;
            const float upper = __ldg(own), lower = __ldg(own + 8);
#pragma unroll
            for (int i = 0; i < Sums; ++i) {
                sum[i] = __fmul_rn(sum[i], i / 2 % 2 == 0 ? upper : lower);
            }
        }
        const i32 rows = column < args.columns ? args.rows - tile.row : 0;  // input rows of the tile that exist
        if (args.out_f32) {
            float* out = static_cast<float*>(args.out) + tile.row * args.out_stride + tile.batch * args.out_batch +
                         column + lane / 4;
#pragma unroll
            for (int i = 0; i < Sums; ++i) {
                const i32 row = i / 4 * 8 + lane % 4 * 2 + i % 2;
                if (row < rows && owner_of(i / 4) == rank) {
                    out[row * args.out_stride + i / 2 % 2 * 8] = sum[i];
                }
            }
            return;
        }
        const u32 stage = at.out + (group * 4 + warp) * (N * 32);
#pragma unroll
        for (int e = 0; e < S::Eights; ++e) {
            ptx::store_columns(stage + (e * 8 + lane % 8) * 32 + lane / 8 % 2 * 16,
                               ptx::pack_bf16(sum[4 * e], sum[4 * e + 1]),
                               ptx::pack_bf16(sum[4 * e + 2], sum[4 * e + 3]));
        }
        __syncwarp();
        u16* out = static_cast<u16*>(args.out) + tile.row * args.out_stride + tile.batch * args.out_batch + column +
                   lane % 2 * 8;
#pragma unroll
        for (int r = 0; r < N; r += 16) {
            const i32 row = r + static_cast<i32>(lane / 2);
            if (row < N && row < rows && owner_of(row / 8) == rank) {
                *reinterpret_cast<uint4*>(out + row * args.out_stride) =
                    ptx::load_vector(stage + row * 32 + lane % 2 * 16);
            }
        }
        __syncwarp();
    }

    // Writes a turned tile: a warp has 16 input rows and GroupRows columns of the result.
    __device__ __forceinline__ void write_turned(float (&sum)[Sums], const FewTile& tile) {
        const i32 column = tile.column + group * S::GroupRows + static_cast<i32>(lane % 4) * 2;
        if (args.factors != nullptr) {
#pragma unroll
            for (int e = 0; e < S::GroupRows / 8; ++e) {
                const float2 f = factors_of(args, column + e * 8);
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    sum[4 * e + i] = __fmul_rn(sum[4 * e + i], i % 2 == 0 ? f.x : f.y);
                }
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const i32 row = static_cast<i32>(warp * 16 + lane / 4) + half * 8;
            const i64 place = row * args.out_stride + tile.batch * args.out_batch + column;
#pragma unroll
            for (int e = 0; e < S::GroupRows / 8; ++e) {
                if (row < args.rows && column + e * 8 < args.columns) {
                    const float first = sum[4 * e + 2 * half], second = sum[4 * e + 2 * half + 1];
                    if (args.out_f32) {
                        *reinterpret_cast<float2*>(static_cast<float*>(args.out) + place + e * 8) =
                            make_float2(first, second);
                    } else {
                        *reinterpret_cast<u32*>(static_cast<u16*>(args.out) + place + e * 8) =
                            ptx::pack_bf16(first, second);
                    }
                }
            }
        }
    }

    __device__ __forceinline__ void run() {
        FewTiles<S> tiles(args);
        const i32 count = span.end - span.begin;
        float ahead = 0;  // the first weight scales of the next tile
        if constexpr (S::Type::Scaled) {
            ahead = WeightScales::fetch(scale_row(tiles.tile()), 0, count);
            ptx::barrier_wait(at.scales_arrived(), 0);
        }
#pragma unroll 1
        while (tiles.more()) {
            const FewTile tile = tiles.tile();
            tiles.next += tiles.step;
            float sum[Sums];
            if constexpr (S::Type::Scaled) {
                scales.begin(scale_row(tile), count, ahead);
                if (tiles.more()) {
                    ahead = WeightScales::fetch(scale_row(tiles.tile()), 0, count);
                }
                sum_scaled(sum);
            } else {
                sum_plain(sum);
            }
            if constexpr (S::Turned) {
                write_turned(sum, tile);
            } else {
                if (args.parts > 1) {
                    add_parts(sum);
                }
                write(sum, tile);
            }
        }
    }
};

template <class S>
__device__ __forceinline__ void multiply_few(const ProductArgs& args) {
    const Span span = span_of(args, part_of(args));
    const FewPlaces<S> at(args);
    const u32 warp = __shfl_sync(ptx::kFullMask, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    FewWalk<S> walk(args, span);
    u32 table = 0;
    if constexpr (S::Held) {
        __shared__ u8 codes[128];
        FewWeights<typename S::Type>::fill(codes);
        table = ptx::shared_address(codes);
    }
    if (warp == 4 * S::Groups) {
        if (lane == 1) {  // lane 1 prefetches the other maps; the map of the weights is used at once
            ptx::prefetch_map(&args.input_map);
        }
        if (S::Type::Scaled && lane == 2) {
            ptx::prefetch_map(&args.scale_map);
        }
        if (lane < static_cast<u32>(args.stages)) {
            ptx::barrier_init(at.full(lane), 1);
            ptx::barrier_init(at.empty(lane), 4 * S::Groups);
        }
        if (lane == 0) {
            ptx::barrier_init(at.scales_arrived(), 1);
            ptx::barrier_init(at.sums_arrived(), 1);
            const u32 parts = args.parts, rank = part_of(args);
            const u32 eights = rank < S::Eights ? (S::Eights - rank + parts - 1) / parts : 0;
            ptx::barrier_expect(at.sums_arrived(), args.parts > 1 ? eights * parts * S::SumBytes : 0);
        }
        ptx::barrier_init_fence();
        __syncwarp();
        if (lane == 0) {
#pragma unroll 1
            for (u32 s = 0; s < static_cast<u32>(args.ahead) && walk.more(); ++s, walk.advance()) {
                ask_weights(args, at, walk, s);
            }
        }
        __syncwarp();
    }
    __syncthreads();
    if (args.parts > 1) {
        ptx::cluster_arrive();
    }
    if (warp == 4 * S::Groups) {
        if (lane == 0) {
            feed(args, at, walk, span);
        }
        __syncwarp();
        if (args.parts > 1) {
            ptx::cluster_wait();
        }
    } else {
        FewMath<S> math(args, at, span, S::Groups == 1 ? 0 : warp / 4);
        math.table = table;
        math.run();
    }
}

}  // namespace sparrow_product
