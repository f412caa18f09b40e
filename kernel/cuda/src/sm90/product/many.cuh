// Products of many rows.
//
// In:    weight e4m3 or bf16 [batch, columns, k]; input of the same type [batch, rows, k]; scales (args.h).
// Out:   bf16 or f32 [rows, batch, columns].
// Block: one per SM, persistent, two in a cluster. A tile is 128 input rows by N columns; the two blocks of a cluster have neighbouring rows and
//        the same columns, and each fetches half of the weights for both. Two warpgroups multiply 64 rows each, one warp asks for copies.
//        e4m3: while one warpgroup scales and adds a block's products, those of the other run.
// Bytes: from L2, for each block of k and tile, 128 rows of input and N / 2 of weights.
#pragma once

#include "ptx/wgmma_half.cuh"
#include "sm90/product/config.h"

namespace sparrow_product {

template <class T, int Columns, bool Apart>
struct ManyShape {
    using Type = T;
    static constexpr int N = Columns;
    static constexpr bool Parted = Apart;  // k has several parts
    static constexpr int Rows = 128;       // of the input
    static constexpr int InputBytes = Rows * kBlockBytes, WeightBytes = N * kBlockBytes;
    static constexpr int StageBytes = InputBytes + WeightBytes;
    static constexpr int ScaleBytes = T::Scaled ? Rows * 4 : 0;
    static constexpr int OutPitch = N * 2 + 16;  // bytes between rows of the result in shared memory: no bank conflicts
    static constexpr int OutBytes = Rows * OutPitch;
    static constexpr int Room = kSharedLimit - 1024 - 256 - OutBytes;
    static constexpr int Stages = Room / (StageBytes + ScaleBytes);
    static_assert(N / 2 % 8 == 0, "halves of the weights are whole swizzle atoms");
    static_assert(Stages >= 2 && Stages <= 16, "a ring of stages");
};

constexpr int kManyThreads = 384;
constexpr int kManyPairs = 8;  // pairs of tiles of rows that run over the columns together, so that they share weights in L2

template <class S>
struct ManyStorage {
    u8 stages[S::Stages][S::StageBytes];  // input rows, then weights
    u8 out[S::OutBytes];
    float scales[S::Stages][S::ScaleBytes / 4 + 1 - 1 * (S::ScaleBytes > 0)];
    u64 full[S::Stages], empty[S::Stages];
};

template <class S>
constexpr u32 many_shared_bytes() {
    return sizeof(ManyStorage<S>) + 1024;
}

template <class S>
__device__ __forceinline__ ManyStorage<S>& many_storage() {
    static_assert(many_shared_bytes<S>() <= kSharedLimit, "more shared memory than a Hopper block can have");
    extern __shared__ u8 dynamic_shared[];
    const u32 misaligned = ptx::shared_address(dynamic_shared) % 1024;
    return *reinterpret_cast<ManyStorage<S>*>(dynamic_shared + (misaligned ? 1024 - misaligned : 0));
}

struct ManyTile {
    i32 row, column, batch;  // of this block
};

// The tiles of a cluster: groups of kManyPairs pairs of row tiles run over all columns.
template <class S>
struct ManyTiles {
    i32 next, step, count, pairs, columns;

    __device__ __forceinline__ explicit ManyTiles(const ProductArgs& args) {
        next = static_cast<i32>(blockIdx.x) / 2;
        step = static_cast<i32>(gridDim.x) / 2;
        pairs = (args.rows + 2 * S::Rows - 1) / (2 * S::Rows);
        columns = (args.columns + S::N - 1) / S::N;
        count = pairs * columns * args.batch;
    }
    __device__ __forceinline__ bool more() const { return next < count; }
    __device__ __forceinline__ ManyTile tile(u32 rank) const {
        const i32 batch = next / (pairs * columns), i = next - batch * pairs * columns;
        const i32 group = i / (kManyPairs * columns), in = i - group * kManyPairs * columns;
        const i32 size = min(kManyPairs, pairs - group * kManyPairs);
        const i32 column = in / size, pair = group * kManyPairs + in - column * size;
        return {(2 * pair + static_cast<i32>(rank)) * S::Rows, column * S::N, batch};
    }
};

// The thread that asks for copies: its block's rows and scales, and half of the weights for both blocks.
template <class S>
__device__ __forceinline__ void feed_many(const ProductArgs& args, ManyStorage<S>& shared, u32 rank) {
    constexpr u32 kHalf = S::WeightBytes / 2;
    constexpr u16 kBoth = 3;
    ManyTiles<S> tiles(args);
    Cursor ring;
#pragma unroll 1
    for (; tiles.more(); tiles.next += tiles.step) {
        const ManyTile tile = tiles.tile(rank);
#pragma unroll 1
        for (i32 block = 0; block < args.blocks; ++block) {
            ptx::barrier_wait(ptx::shared_address(&shared.empty[ring.stage]), ring.parity ^ 1);
            const u32 full = ptx::shared_address(&shared.full[ring.stage]), stage = ptx::shared_address(shared.stages[ring.stage]);
            const i32 k = block * S::Type::BlockColumns;
            ptx::barrier_expect(full, S::StageBytes + S::ScaleBytes);
            ptx::load_3d(stage, &args.input_map, full, k, tile.row, tile.batch, ptx::kEvictNormal);
            ptx::load_3d_multicast(stage + S::InputBytes + rank * kHalf, &args.weight_map, full, k, tile.column + static_cast<i32>(rank) * (S::N / 2), tile.batch,
                                   kBoth, ptx::kEvictNormal);
            if constexpr (S::Type::Scaled) {
                ptx::load_2d(ptx::shared_address(shared.scales[ring.stage]), &args.scale_map, full, tile.row, block, ptx::kEvictNormal);
            }
            ring.advance(S::Stages);
        }
    }
}

// A warpgroup that multiplies: 64 rows of each tile.
template <class S>
struct ManyMath {
    static constexpr int N = S::N, Sums = N / 2;
    static constexpr bool OneScale = N == kScaleRows;  // tiles of columns are blocks of the weight's scales

    const ProductArgs& args;
    ManyStorage<S>& shared;
    const u32 rank;
    const i32 group;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    Cursor ask, done;
    WeightScales first, second;  // of the two blocks of the weight's scales that a tile touches
    i32 border;                  // columns of the tile that have the first

    __device__ __forceinline__ ManyMath(const ProductArgs& a, ManyStorage<S>& s, u32 r, i32 g) : args(a), shared(s), rank(r), group(g) {}

    __device__ __forceinline__ void wait_full() { ptx::barrier_wait(ptx::shared_address(&shared.full[ask.stage]), ask.parity); }

    __device__ __forceinline__ void ask_products(float (&d)[Sums], bool go_on) {
        const u32 stage = ptx::shared_address(shared.stages[ask.stage]);
        multiply_block<typename S::Type, N>(d, stage + group * 64 * kBlockBytes, stage + S::InputBytes, go_on);
    }

    // A stage is free when the warps of both blocks have said so to both.
    __device__ __forceinline__ void free_stage(u32 stage) {
        __syncwarp();
        if (lane < 2) {
            ptx::peer_arrive(ptx::peer_address(ptx::shared_address(&shared.empty[stage]), lane));
        }
    }

    __device__ __forceinline__ void begin_scales(const ManyTile& tile) {
        const i32 last = (args.columns - 1) / kScaleRows, row = min(tile.column / kScaleRows, last);
        border = kScaleRows - tile.column % kScaleRows;
        first.begin(args.weight_scales + static_cast<i64>(row) * args.blocks, args.blocks);
        if constexpr (!OneScale) {
            second.begin(args.weight_scales + static_cast<i64>(min(row + 1, last)) * args.blocks, args.blocks);
        }
    }

    // One block of e4m3: products, then sum += products times scales.
    __device__ __forceinline__ void add_scaled(float (&sum)[Sums], i32 block) {
        float d[Sums];
        wait_full();
        ask_products(d, false);
        const u32 scales = ptx::shared_address(shared.scales[ask.stage]) + (group * 64 + warp * 16 + lane / 4) * 4;
        const float upper = ptx::load_float(scales), lower = ptx::load_float(scales + 32);
        const float a = first.at(block);
        const float a0 = __fmul_rn(upper, a), a1 = __fmul_rn(lower, a);
        float b0 = a0, b1 = a1;
        if constexpr (!OneScale) {
            const float b = second.at(block);
            b0 = __fmul_rn(upper, b);
            b1 = __fmul_rn(lower, b);
        }
        ptx::mma_wait<0>();
        ptx::mma_pin(d);
        free_stage(ask.stage);
        ask.advance(S::Stages);
#pragma unroll
        for (int e = 0; e < N / 8; ++e) {
            const bool in_first = OneScale || e * 8 < border;
            const float f0 = in_first ? a0 : b0, f1 = in_first ? a1 : b1;
            sum[4 * e] = __fmaf_rn(f0, d[4 * e], sum[4 * e]);
            sum[4 * e + 1] = __fmaf_rn(f0, d[4 * e + 1], sum[4 * e + 1]);
            sum[4 * e + 2] = __fmaf_rn(f1, d[4 * e + 2], sum[4 * e + 2]);
            sum[4 * e + 3] = __fmaf_rn(f1, d[4 * e + 3], sum[4 * e + 3]);
        }
    }

    // The sum of one part.
    __device__ __forceinline__ void sum_part(float (&sum)[Sums], Span span) {
        if constexpr (S::Type::Scaled) {
#pragma unroll
            for (int i = 0; i < Sums; ++i) {
                sum[i] = 0;
            }
#pragma unroll 1
            for (i32 block = span.begin; block < span.end; ++block) {
                add_scaled(sum, block);
            }
        } else {
            wait_full();
            ask_products(sum, false);
            ask.advance(S::Stages);
#pragma unroll 1
            for (i32 block = span.begin + 1; block < span.end; ++block) {
                wait_full();
                ask_products(sum, true);
                ask.advance(S::Stages);
                ptx::mma_wait<1>();
                free_stage(done.stage);
                done.advance(S::Stages);
            }
            ptx::mma_wait<0>();
            ptx::mma_pin(sum);
            free_stage(done.stage);
            done.advance(S::Stages);
        }
    }

    // A warp writes its 16 rows: float32 from registers, bf16 through shared memory in 16-byte pieces of rows.
    __device__ __forceinline__ void write(const float (&sum)[Sums], const ManyTile& tile) {
        const i32 top = group * 64 + warp * 16;
        if (args.out_f32) {
            float* out = static_cast<float*>(args.out) + tile.batch * args.out_batch + tile.column + lane % 4 * 2;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const i32 row = tile.row + top + static_cast<i32>(lane / 4) + half * 8;
#pragma unroll
                for (int e = 0; e < N / 8; ++e) {
                    if (row < args.rows && tile.column + e * 8 < args.columns) {
                        *reinterpret_cast<float2*>(out + row * args.out_stride + e * 8) = make_float2(sum[4 * e + 2 * half], sum[4 * e + 2 * half + 1]);
                    }
                }
            }
            return;
        }
        const u32 stage = ptx::shared_address(shared.out) + top * S::OutPitch;
#pragma unroll
        for (int e = 0; e < N / 8; e += 2) {
            const u32 words[4] = {ptx::pack_bf16(sum[4 * e], sum[4 * e + 1]), ptx::pack_bf16(sum[4 * e + 2], sum[4 * e + 3]), ptx::pack_bf16(sum[4 * e + 4], sum[4 * e + 5]),
                                  ptx::pack_bf16(sum[4 * e + 6], sum[4 * e + 7])};
            ptx::store_fragments(stage + lane % 16 * S::OutPitch + (e + lane / 16) * 16, words);
        }
        __syncwarp();
        u16* out = static_cast<u16*>(args.out) + tile.batch * args.out_batch + tile.column;
        constexpr int kPieces = N / 8;  // of a row
#pragma unroll 4
        for (u32 i = lane; i < 16 * kPieces; i += 32) {
            const u32 r = i / kPieces, piece = i - r * kPieces;
            const i32 row = tile.row + top + static_cast<i32>(r);
            if (row < args.rows && tile.column + static_cast<i32>(piece) * 8 < args.columns) {
                *reinterpret_cast<uint4*>(out + row * args.out_stride + piece * 8) = ptx::load_vector(stage + r * S::OutPitch + piece * 16);
            }
        }
        __syncwarp();
    }

    __device__ __forceinline__ void run() {
        ManyTiles<S> tiles(args);
#pragma unroll 1
        for (; tiles.more(); tiles.next += tiles.step) {
            const ManyTile tile = tiles.tile(rank);
            if constexpr (S::Type::Scaled) {
                begin_scales(tile);
            }
            float sum[Sums];
            sum_part(sum, span_of(args, 0));
            if constexpr (S::Parted) {
                float part[Sums];
#pragma unroll 1
                for (i32 p = 1; p < args.parts; ++p) {
                    sum_part(part, span_of(args, p));
#pragma unroll
                    for (int i = 0; i < Sums; ++i) {
                        sum[i] = __fadd_rn(sum[i], part[i]);
                    }
                }
            }
            write(sum, tile);
        }
    }
};

template <class S>
__device__ __forceinline__ void multiply_many(const ProductArgs& args) {
    ManyStorage<S>& shared = many_storage<S>();
    const u32 warp = __shfl_sync(ptx::kFullMask, threadIdx.x / 32, 0), rank = ptx::cluster_rank();
    if (threadIdx.x == 0) {
        ptx::prefetch_map(&args.weight_map);
        ptx::prefetch_map(&args.input_map);
        for (int s = 0; s < S::Stages; ++s) {
            ptx::barrier_init(ptx::shared_address(&shared.full[s]), 1);
            ptx::barrier_init(ptx::shared_address(&shared.empty[s]), 2 * 8);
        }
        ptx::barrier_init_fence();
    }
    ptx::cluster_sync();
    if (warp >= 8) {
        ptx::registers_shrink<40>();
        if (warp == 8 && threadIdx.x % 32 == 0) {
            ptx::wait_for_previous_kernel();
            feed_many(args, shared, rank);
            ptx::release_next_kernel();
        }
        __syncwarp();
    } else {
        ptx::registers_grow<232>();
        ManyMath<S>(args, shared, rank, warp / 4).run();
    }
    ptx::cluster_sync();  // the other block still copies to this one and arrives at its barriers
}

}  // namespace sparrow_product
