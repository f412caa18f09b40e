// Products of many rows.
//
// In:    weight e4m3 or bf16 [batch, columns, k]; input of the same type [batch, rows, k]; scales (args.h).
// Out:   bf16 or f32 [rows, batch, columns].
// Block: one per SM (two where k is short), persistent, two in a cluster. A tile is 128 input rows by N columns; the
//        two blocks of a cluster have neighbouring rows and the same columns, and each fetches half of the weights for
//        both. Where there is one tile of rows alone they have neighbouring columns, and each fetches half of the rows
//        for both. Two warpgroups multiply 64 rows each, one warp asks for copies. e4m3: a warpgroup scales and adds a
//        block's products while others run: its own of the next block where registers allow two sets of accumulators,
//        else those of the other warpgroup, and then the two take turns. Where k has several parts, their sum is in
//        shared memory.
// Bytes: from L2, for each block of k and tile, 128 rows of input and N / 2 of weights, or 64 and N.
// H200:  4096 rows, 36864 x 7168 e4m3: 1289 TFLOP/s, 78 % of what the instructions alone reach (1117 without pauses:
//        the power limit); 24576 x 1536: 1152, 70 %; head in bf16: 706 TFLOP/s, 89 %.
#pragma once

#include "ptx/wgmma_half.cuh"
#include "sm90/product/config.h"

namespace sparrow_product {

// PerSM blocks share an SM: with short k a block's stores run beside another's products.
template <class T, int Columns, bool Apart, int Blocks = 1>
struct ManyShape {
    using Type = T;
    static constexpr int N = Columns, PerSM = Blocks;
    // Two warpgroups that multiply, and one or one warp that asks for copies.
    static constexpr int Threads = PerSM == 1 ? 384 : 288;
    static constexpr bool Parted = Apart;                // k has several parts
    static constexpr bool Deep = T::Scaled && N <= 128;  // two sets of accumulators
    static constexpr int Rows = 128;                     // of the input
    static constexpr int InputBytes = Rows * kBlockBytes, WeightBytes = N * kBlockBytes;
    static constexpr int StageBytes = InputBytes + WeightBytes;
    static constexpr int ScaleBytes = T::Scaled ? Rows * 4 : 0;
    // The sum of parts, then the result in bf16: a warp has 16 rows.
    static constexpr int OutBytes = Rows * N * (Parted ? 4 : 2);
    static constexpr int Room = (kSharedLimit - (PerSM - 1) * 1024) / PerSM - 1024 - 256 - OutBytes;
    static constexpr int Stages = Room / (StageBytes + ScaleBytes);
    static_assert(N % 64 == 0, "results are stored in boxes of 64 columns");
    static_assert(Stages >= 2 && Stages <= 16, "a ring of stages");
};

// Pairs of tiles of rows that run over the columns together, so that they share weights in L2.
constexpr int kManyPairs = 8;

// Addresses in shared memory. The base passes through a shuffle, so that the compiler keeps it instead of working it
// out in every loop.
template <class S>
struct ManyPlaces {
    u32 base;

    __device__ __forceinline__ ManyPlaces() {
        extern __shared__ u8 dynamic_shared[];
        base = __shfl_sync(ptx::kFullMask, (ptx::shared_address(dynamic_shared) + 1023) / 1024 * 1024, 0);
    }
    __device__ __forceinline__ u32 inputs(u32 stage) const { return base + stage * S::StageBytes; }
    __device__ __forceinline__ u32 weights(u32 stage) const { return inputs(stage) + S::InputBytes; }
    __device__ __forceinline__ u32 out() const { return base + S::Stages * S::StageBytes; }
    __device__ __forceinline__ u32 scales(u32 stage) const { return out() + S::OutBytes + stage * S::ScaleBytes; }
    __device__ __forceinline__ u32 full(u32 stage) const { return scales(S::Stages) + stage * 8; }
    __device__ __forceinline__ u32 empty(u32 stage) const { return full(S::Stages + stage); }
};

template <class S>
constexpr u32 many_shared_bytes() {
    constexpr u32 kBytes = 1024 + S::Stages * (S::StageBytes + S::ScaleBytes + 16) + S::OutBytes;
    static_assert(kBytes <= kSharedLimit, "more shared memory than a Hopper block can have");
    return kBytes;
}

struct ManyTile {
    i32 row, column, batch;  // of this block
};

// The tiles of a cluster: groups of kManyPairs pairs of row tiles run over all columns.
template <class S>
struct ManyTiles {
    i32 next, step, count, pairs, across;
    Divisor each, group, last;  // tiles of one of the batch, of a group of pairs, and pairs of the last group

    __device__ __forceinline__ explicit ManyTiles(const ProductArgs& args)
        : pairs((args.rows + 2 * S::Rows - 1) / (2 * S::Rows)),
          each(pairs * columns_of(args)),
          group(kManyPairs * columns_of(args)),
          last((pairs - 1) % kManyPairs + 1) {
        across = args.across;
        next = static_cast<i32>(blockIdx.x) / 2;
        step = static_cast<i32>(gridDim.x) / 2;
        count = each.by * args.batch;
    }
    __device__ __forceinline__ static i32 columns_of(const ProductArgs& args) {
        return (args.columns + (S::N << args.across) - 1) / (S::N << args.across);
    }
    __device__ __forceinline__ bool more() const { return next < count; }
    __device__ __forceinline__ ManyTile tile(u32 rank) const {
        const i32 batch = each.divide(next), i = next - batch * each.by;
        const i32 g = group.divide(i), in = i - g * group.by;
        const bool whole = pairs - g * kManyPairs >= kManyPairs;
        const i32 column = whole ? in / kManyPairs : last.divide(in);
        const i32 pair = g * kManyPairs + in - column * (whole ? kManyPairs : last.by);
        const i32 r = static_cast<i32>(rank);
        return across ? ManyTile{0, (2 * column + r) * S::N, batch}
                      : ManyTile{(2 * pair + r) * S::Rows, column * S::N, batch};
    }
};

// The thread that asks for copies: of what the two blocks of a cluster share its half for both, of what they do not
// share both halves.
template <class S>
__device__ __forceinline__ void feed_many(const ProductArgs& args, const ManyPlaces<S>& at, u32 rank) {
    constexpr u16 kBoth = 3;
    constexpr i32 kHalfRows = S::Rows / 2, kHalfColumns = S::N / 2;
    const i32 r = static_cast<i32>(rank);
    ManyTiles<S> tiles(args);
    Cursor ring;
#pragma unroll 1
    for (; tiles.more(); tiles.next += tiles.step) {
        const ManyTile tile = tiles.tile(rank);
#pragma unroll 1
        for (i32 block = 0; block < args.blocks; ++block) {
            ptx::barrier_wait(at.empty(ring.stage), ring.parity ^ 1);
            const u32 full = at.full(ring.stage), inputs = at.inputs(ring.stage), weights = at.weights(ring.stage);
            const i32 k = block * S::Type::BlockColumns;
            ptx::barrier_expect(full, S::StageBytes + S::ScaleBytes);
            if (args.across) {
                ptx::load_3d_multicast(inputs + rank * (S::InputBytes / 2), &args.input_map, full, k,
                                       tile.row + r * kHalfRows, tile.batch, kBoth, ptx::kEvictNormal);
                ptx::load_3d(weights, &args.weight_map, full, k, tile.column, tile.batch, ptx::kEvictFirst);
                ptx::load_3d(weights + S::WeightBytes / 2, &args.weight_map, full, k, tile.column + kHalfColumns,
                             tile.batch, ptx::kEvictFirst);
            } else {
                ptx::load_3d(inputs, &args.input_map, full, k, tile.row, tile.batch, ptx::kEvictNormal);
                ptx::load_3d(inputs + S::InputBytes / 2, &args.input_map, full, k, tile.row + kHalfRows, tile.batch,
                             ptx::kEvictNormal);
                ptx::load_3d_multicast(weights + rank * (S::WeightBytes / 2), &args.weight_map, full, k,
                                       tile.column + r * kHalfColumns, tile.batch, kBoth, ptx::kEvictNormal);
            }
            if constexpr (S::Type::Scaled) {
                ptx::load_2d(at.scales(ring.stage), &args.scale_map, full, tile.row, block, ptx::kEvictNormal);
            }
            ring.advance(S::Stages);
        }
    }
}

// A warpgroup that multiplies: 64 rows of each tile.
template <class S>
struct ManyMath {
    static constexpr int N = S::N, Sums = N / 2;
    static constexpr bool OneScale = N <= kScaleRows;  // tiles of columns are within a block of the weight's scales

    const ProductArgs& args;
    const ManyPlaces<S> at;
    const u32 rank;
    const i32 group;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    Cursor ask, done;            // stages whose products are asked for next, and whose products are there next
    WeightScales first, second;  // of the two blocks of the weight's scales that a tile touches

    __device__ __forceinline__ ManyMath(const ProductArgs& a, const ManyPlaces<S>& p, u32 r, i32 g)
        : args(a), at(p), rank(r), group(g) {}

    __device__ __forceinline__ void ask_products(float (&d)[Sums], bool go_on) {
        ptx::barrier_wait(at.full(ask.stage), ask.parity);
        multiply_block<typename S::Type, N>(d, at.inputs(ask.stage) + group * 64 * kBlockBytes, at.weights(ask.stage),
                                            go_on);
        ask.advance(S::Stages);
    }

    // A stage is free when the warps of both blocks have said so to both.
    __device__ __forceinline__ void free_stage() {
        __syncwarp();
        if (lane < 2) {
            ptx::peer_arrive(ptx::peer_address(at.empty(done.stage), lane));
        }
        done.advance(S::Stages);
    }

    // Turns of the two warpgroups at asking for products; both run through the same number of them.
    __device__ __forceinline__ void take_turn() const {
        group == 0 ? ptx::group_sync<1, 256>() : ptx::group_sync<2, 256>();
    }
    __device__ __forceinline__ void give_turn() const { group == 0 ? group_arrive<2, 256>() : group_arrive<1, 256>(); }

    __device__ __forceinline__ const float* scale_row(const ManyTile& tile, i32 further) const {
        const i32 last = (args.columns - 1) / kScaleRows;
        return args.weight_scales + static_cast<i64>(min(tile.column / kScaleRows + further, last)) * args.blocks;
    }

    // Waits for all products but the Pending last, frees their stage and adds them times their scales. The first Border
    // columns of the tile have the first block of the weight's scales.
    template <int Pending, int Border>
    __device__ __forceinline__ void promote(float (&sum)[Sums], float (&d)[Sums], i32 block) {
        const u32 scales = at.scales(done.stage) + (group * 64 + warp * 16 + lane / 4) * 4;
        const float rows[2] = {ptx::load_float(scales), ptx::load_float(scales + 32)};
        const float a = first.at(block), b = Border < N ? second.at(block) : 0.0f;
        const float before[2] = {__fmul_rn(rows[0], a), __fmul_rn(rows[1], a)};
        const float behind[2] = {__fmul_rn(rows[0], b), __fmul_rn(rows[1], b)};
        ptx::mma_wait<Pending>();
        ptx::mma_pin(d);
        free_stage();
#pragma unroll
        for (int i = 0; i < Sums; ++i) {
            sum[i] = __fmaf_rn(i / 4 * 8 < Border ? before[i / 2 % 2] : behind[i / 2 % 2], d[i], sum[i]);
        }
    }

    // The sum of a part in e4m3.
    template <int Border>
    __device__ __forceinline__ void sum_scaled(float (&sum)[Sums], Span span) {
#pragma unroll
        for (int i = 0; i < Sums; ++i) {
            sum[i] = 0;
        }
        if constexpr (S::Deep) {
            float d0[Sums], d1[Sums];
            ask_products(d0, false);
            i32 i = span.begin + 1;
#pragma unroll 1
            for (; i + 1 < span.end; i += 2) {
                ask_products(d1, false);
                promote<1, Border>(sum, d0, i - 1);
                ask_products(d0, false);
                promote<1, Border>(sum, d1, i);
            }
            if (i < span.end) {
                ask_products(d1, false);
                promote<1, Border>(sum, d0, i - 1);
                promote<0, Border>(sum, d1, i);
            } else {
                promote<0, Border>(sum, d0, i - 1);
            }
        } else {
            float d[Sums];
#pragma unroll 1
            for (i32 block = span.begin; block < span.end; ++block) {
                take_turn();
                ask_products(d, false);
                give_turn();
                promote<0, Border>(sum, d, block);
            }
        }
    }

    // The sum of one part.
    __device__ __forceinline__ void sum_part(float (&sum)[Sums], const ManyTile& tile, Span span) {
        if constexpr (!S::Type::Scaled) {
            ask_products(sum, false);
#pragma unroll 1
            for (i32 block = span.begin + 1; block < span.end; ++block) {
                ask_products(sum, true);
                ptx::mma_wait<1>();
                free_stage();
            }
            ptx::mma_wait<0>();
            ptx::mma_pin(sum);
            free_stage();
        } else if constexpr (OneScale) {
            sum_scaled<N>(sum, span);
        } else {
            static_assert(OneScale || N == 192, "tiles begin with a block of scales or in the middle of one");
            tile.column % kScaleRows == 0 ? sum_scaled<kScaleRows>(sum, span) : sum_scaled<kScaleRows / 2>(sum, span);
        }
    }

    // Adds a part to those before it, which are in shared memory, and keeps the sum there unless it is the last.
    __device__ __forceinline__ void add_part(float (&sum)[Sums], bool is_first, bool is_last) {
        const u32 mine = at.out() + (group * 4 + warp) * (16 * N * 4) + lane * 16;
#pragma unroll
        for (int i = 0; i < Sums; i += 4) {
            if (!is_first) {
                const uint4 v = ptx::load_vector(mine + i / 4 * 512);
                sum[i] = __fadd_rn(__uint_as_float(v.x), sum[i]);
                sum[i + 1] = __fadd_rn(__uint_as_float(v.y), sum[i + 1]);
                sum[i + 2] = __fadd_rn(__uint_as_float(v.z), sum[i + 2]);
                sum[i + 3] = __fadd_rn(__uint_as_float(v.w), sum[i + 3]);
            }
            if (!is_last) {
                ptx::store_vector(mine + i / 4 * 512, __float_as_uint(sum[i]), __float_as_uint(sum[i + 1]),
                                  __float_as_uint(sum[i + 2]), __float_as_uint(sum[i + 3]));
            }
        }
        __syncwarp();
    }

    // A warp writes its 16 rows: float32 from registers, bf16 through shared memory and the copy engine in boxes of 64
    // columns.
    __device__ __forceinline__ void write(const float (&sum)[Sums], const ManyTile& tile) {
        const i32 top = tile.row + group * 64 + static_cast<i32>(warp) * 16;
        if (args.out_f32) {
            float* out = static_cast<float*>(args.out) + tile.batch * args.out_batch + tile.column + lane % 4 * 2;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const i32 row = top + static_cast<i32>(lane / 4) + half * 8;
#pragma unroll
                for (int e = 0; e < N / 8; ++e) {
                    if (row < args.rows && tile.column + e * 8 < args.columns) {
                        *reinterpret_cast<float2*>(out + row * args.out_stride + e * 8) =
                            make_float2(sum[4 * e + 2 * half], sum[4 * e + 2 * half + 1]);
                    }
                }
            }
            return;
        }
        const u32 boxes = at.out() + (group * 4 + warp) * (S::OutBytes / 8), row = lane % 16;
#pragma unroll
        for (int e = 0; e < N / 8; e += 2) {
            const u32 words[4] = {
                ptx::pack_bf16(sum[4 * e], sum[4 * e + 1]), ptx::pack_bf16(sum[4 * e + 2], sum[4 * e + 3]),
                ptx::pack_bf16(sum[4 * e + 4], sum[4 * e + 5]), ptx::pack_bf16(sum[4 * e + 6], sum[4 * e + 7])};
            ptx::store_fragments(boxes + e / 8 * 2048 + row * 128 + (((e % 8 + lane / 16) ^ (row & 7)) << 4), words);
        }
        ptx::fence_async_proxy();
        __syncwarp();
        if (lane == 0) {
#pragma unroll
            for (int box = 0; box < N / 64; ++box) {
                ptx::store_3d(&args.out_map, boxes + box * 2048, tile.column + box * 64, top, tile.batch);
            }
            ptx::stores_commit();
        }
    }

    __device__ __forceinline__ void run() {
        ManyTiles<S> tiles(args);
        float first_ahead = 0, second_ahead = 0;  // the first scales of the next tile
        ManyTile tile = tiles.tile(rank);         // the next tile
        const auto fetch_ahead = [&] {
            if (S::Type::Scaled && tiles.more()) {
                first_ahead = WeightScales::fetch(scale_row(tile, 0), 0, args.blocks);
                second_ahead = OneScale ? 0.0f : WeightScales::fetch(scale_row(tile, 1), 0, args.blocks);
            }
        };
        fetch_ahead();
        if (S::Type::Scaled && !S::Deep && group == 1) {
            give_turn();
        }
#pragma unroll 1
        while (tiles.more()) {
            const ManyTile now = tile;
            tiles.next += tiles.step;
            tile = tiles.tile(rank);
            if constexpr (S::Type::Scaled) {
                first.begin(scale_row(now, 0), args.blocks, first_ahead);
                if constexpr (!OneScale) {
                    second.begin(scale_row(now, 1), args.blocks, second_ahead);
                }
                fetch_ahead();
            }
            float sum[Sums];
            const i32 parts = S::Parted ? args.parts : 1;
#pragma unroll 1
            for (i32 p = 0; p < parts; ++p) {
                sum_part(sum, now, span_of(args, p));
                if (p == 0) {  // the warp's shared memory is free when its last results are stored
                    if (lane == 0) {
                        ptx::stores_read();
                    }
                    __syncwarp();
                }
                if constexpr (S::Parted) {
                    add_part(sum, p == 0, p == parts - 1);
                }
            }
            write(sum, now);
        }
        if (lane == 0) {
            ptx::stores_wait();
        }
        __syncwarp();
    }
};

template <class S>
__device__ __forceinline__ void multiply_many(const ProductArgs& args) {
    const ManyPlaces<S> at;
    const u32 warp = __shfl_sync(ptx::kFullMask, threadIdx.x / 32, 0), rank = ptx::cluster_rank();
    if (threadIdx.x == 0) {
        ptx::prefetch_map(&args.weight_map);
        ptx::prefetch_map(&args.input_map);
        for (int s = 0; s < S::Stages; ++s) {
            ptx::barrier_init(at.full(s), 1);
            ptx::barrier_init(at.empty(s), 2 * 8);
        }
        ptx::barrier_init_fence();
    }
    ptx::cluster_sync();
    if (warp >= 8) {
        if constexpr (S::PerSM == 1) {
            ptx::registers_shrink<40>();
        }
        if (warp == 8 && threadIdx.x % 32 == 0) {
            ptx::wait_for_previous_kernel();
            feed_many(args, at, rank);
            ptx::release_next_kernel();
        }
        __syncwarp();
    } else {
        if constexpr (S::PerSM == 1) {
            ptx::registers_grow<232>();
        }
        ManyMath<S>(args, at, rank, warp / 4).run();
    }
    ptx::cluster_sync();  // the other block still copies to this one and arrives at its barriers
}

}  // namespace sparrow_product
