// Matrix products of many rows.
//
// In:    weight e4m3 or bf16 [batch, columns, k]; input of the same type [batch, rows, k]; scales (args.h).
// Out:   bf16 or f32 [rows, batch, columns].
// Block: one per SM, persistent, in clusters of two. A tile is 128 or 256 input rows by N columns. The two blocks of
//        a cluster have either adjacent tiles of 128 rows and the same columns, and each loads half of the weights
//        for both; or they have the same rows (256, or the only tile of 128) and adjacent columns, and each loads
//        half of the rows for both. Two warpgroups multiply 64 or twice 64 rows each; one warp issues copies. For
//        e4m3, a warpgroup scales and adds the products of a block while others run: its own products of the next
//        block if there are registers for two sets of accumulators, otherwise the products of the other warpgroup. If
//        k has several parts, their sum is in registers or in shared memory; for tiles of 256 rows half of it is in
//        global memory, which stays in L2.
// Bytes: for each block of k and tile, 128 rows of input and N / 2 rows of weights from L2, or half of the rows and N
//        rows of weights.
// H200:  4096 rows, with pauses, 7168 x 16384 e4m3: 1385 TFLOP/s, 84 % of the rate of the instructions alone; 24576 x
//        1536: 1199, 73 %; head in bf16: 723 TFLOP/s, 92 %.
#pragma once

#include "ptx/global.cuh"
#include "ptx/wgmma_half.cuh"
#include "sm90/product/config.h"

namespace sparrow_product {

// A math warpgroup has RowWaves waves of 64 rows. Apart: k has several parts.
template <class T, int Columns, int RowWaves, bool Apart>
struct ManyShape {
    using Type = T;
    static constexpr int N = Columns, Waves = RowWaves;
    static constexpr bool Parted = Apart;
    static constexpr int Threads = 384;  // two math warpgroups, and one warpgroup of which a warp issues copies
    // For e4m3: two sets of accumulators, if there are enough registers.
    static constexpr bool Deep = T::Scaled && N <= 128 && Waves == 1 && !Parted;
    static constexpr int Rows = 128 * Waves;  // input rows per tile
    static constexpr int InputBytes = Rows * kBlockBytes, WeightBytes = N * kBlockBytes;
    static constexpr int StageBytes = InputBytes + WeightBytes;
    static constexpr int ScaleBytes = T::Scaled ? Rows * 4 : 0;
    // The sum of parts of the first of two waves is in shared memory, and that of the second in global memory. For
    // e4m3, the sum of a single wave stays in registers if there are enough, otherwise in shared memory.
    static constexpr bool Away = Parted && Waves == 2, Kept = Parted && !Away && T::Scaled && N <= 128;
    // Memory for the sum of parts, and later for the result in bf16. A warp has 16 rows of each wave. One wave in
    // float32 takes as many bytes as two waves in bf16.
    static constexpr int OutBytes = Rows * N * (Parted && !Kept && !Away ? 4 : 2);
    static constexpr int Stages = (kSharedLimit - 1024 - 256 - OutBytes) / (StageBytes + ScaleBytes);
    // Results are stored in boxes of 64 columns if N is a multiple of 64, otherwise in boxes of N columns.
    static constexpr bool Boxes = N % 64 == 0;
    static_assert(N % 16 == 0 && (!Away || T::Scaled), "columns of a part of a scale, and sums of waves");
    static_assert(Stages >= 2 && Stages <= 16, "a ring of stages");
};

// The number of pairs of tiles of 128 rows that process the columns together, so that they share weights in L2.
constexpr int kManyPairs = 8;

// Addresses in shared memory. The base passes through a shuffle, so that the compiler keeps it in a register instead
// of computing it again in every loop.
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
    i32 row, column, batch;  // first input row, first column, and batch element
};

// The tiles of a cluster. Groups of kManyPairs pairs of row tiles process all columns, one group after the other.
template <class S>
struct ManyTiles {
    i32 next, step, count, pairs, across;
    // Each, group: tiles of an element of the batch, and of a group of pairs; last: pairs of the last group.
    Divisor each, group, last;

    __device__ __forceinline__ explicit ManyTiles(const ProductArgs& args)
        : pairs((args.rows + 255) / 256),
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
        return across ? ManyTile{pair * S::Rows, (2 * column + r) * S::N, batch}
                      : ManyTile{(2 * pair + r) * S::Rows, column * S::N, batch};
    }
};

// The copy thread. It loads half of the operand that the two thread blocks of a cluster share, with a multicast copy to
// both, and all of the other operand.
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
            if (S::Waves > 1 || args.across) {
                const u64 policy = S::Waves > 1 ? ptx::kEvictNormal : ptx::kEvictFirst;
                ptx::load_3d_multicast(inputs + rank * (S::InputBytes / 2), &args.input_map, full, k,
                                       tile.row + r * kHalfRows, tile.batch, kBoth, ptx::kEvictNormal);
                ptx::load_3d(weights, &args.weight_map, full, k, tile.column, tile.batch, policy);
                ptx::load_3d(weights + S::WeightBytes / 2, &args.weight_map, full, k, tile.column + kHalfColumns,
                             tile.batch, policy);
            } else {
                ptx::load_3d(inputs, &args.input_map, full, k, tile.row, tile.batch, ptx::kEvictNormal);
                ptx::load_3d(inputs + S::InputBytes / 2, &args.input_map, full, k, tile.row + kHalfRows, tile.batch,
                             ptx::kEvictNormal);
                ptx::load_3d_multicast(weights + rank * (S::WeightBytes / 2), &args.weight_map, full, k,
                                       tile.column + r * kHalfColumns, tile.batch, kBoth, ptx::kEvictNormal);
            }
            if constexpr (S::Type::Scaled) {
                ptx::load_2d(at.scales(ring.stage), &args.scale_map, full, tile.row,
                             tile.batch * args.blocks + block, ptx::kEvictNormal);
            }
            ring.advance(S::Stages);
        }
    }
}

// A math warpgroup: S::Waves waves of 64 rows of each tile.
template <class S>
struct ManyMath {
    static constexpr int N = S::N, Sums = N / 2;
    // The number of weight scale blocks that a tile of columns overlaps.
    static constexpr int ScaleBlocks = N % 128 == 0 ? N / 128 : (N + 128 - (N % 64 == 0 ? 64 : 16) - 1) / 128 + 1;

    const ProductArgs& args;
    const ManyPlaces<S> at;
    const u32 rank;
    const i32 group;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    Cursor ask, done;  // ask: stage whose products are issued next; done: stage whose products complete next
    WeightScales scales[ScaleBlocks];

    __device__ __forceinline__ ManyMath(const ProductArgs& a, const ManyPlaces<S>& p, u32 r, i32 g)
        : args(a), at(p), rank(r), group(g) {}

    __device__ __forceinline__ void ask_products(float (&d)[Sums], bool go_on) {
        ptx::barrier_wait(at.full(ask.stage), ask.parity);
        ask_block<typename S::Type, N>(d, at.inputs(ask.stage) + group * 64 * kBlockBytes, at.weights(ask.stage),
                                       go_on);
        ask.advance(S::Stages);
    }

    // Releases a stage: each warp arrives at the empty barriers of both thread blocks of the cluster.
    __device__ __forceinline__ void free_stage() {
        __syncwarp();
        if (lane < 2) {
            ptx::peer_arrive(ptx::peer_address(at.empty(done.stage), lane));
        }
        done.advance(S::Stages);
    }

    __device__ __forceinline__ const float* scale_row(const ManyTile& tile, i32 further) const {
        const i32 last = (args.columns - 1) / kScaleRows;
        const i32 row = tile.batch * (last + 1) + min(tile.column / kScaleRows + further, last);
        return args.weight_scales + static_cast<i64>(row) * args.blocks;
    }

    // Waits until at most Pending groups of products are incomplete, releases the stage of the completed group, and
    // adds its products times their scales to sum.
    template <int Pending>
    __device__ __forceinline__ void promote(float (&sum)[Sums], float (&d)[Sums], i32 block) {
        const u32 rows = at.scales(done.stage) + (group * 64 + warp * 16 + lane / 4) * 4;
        const float weight = scales[0].at(block);
        const float factors[2] = {__fmul_rn(ptx::load_float(rows), weight),
                                  __fmul_rn(ptx::load_float(rows + 32), weight)};
        ptx::mma_wait<Pending>();
        ptx::mma_pin(d);
        free_stage();
#pragma unroll
        for (int i = 0; i < Sums; ++i) {
            sum[i] = __fmaf_rn(factors[i / 2 % 2], d[i], sum[i]);
        }
    }

    // Computes the sum of a part in e4m3 with two sets of accumulators: the products of a block of k run while the
    // products of the previous block are added.
    __device__ __forceinline__ void sum_deep(float (&sum)[Sums], Span span) {
        float d0[Sums], d1[Sums];
#pragma unroll
        for (int i = 0; i < Sums; ++i) {
            sum[i] = 0;
        }
        ask_products(d0, false);
        i32 i = span.begin + 1;
#pragma unroll 1
        for (; i + 1 < span.end; i += 2) {
            ask_products(d1, false);
            promote<1>(sum, d0, i - 1);
            ask_products(d0, false);
            promote<1>(sum, d1, i);
        }
        if (i < span.end) {
            ask_products(d1, false);
            promote<1>(sum, d0, i - 1);
            promote<0>(sum, d1, i);
        } else {
            promote<0>(sum, d0, i - 1);
        }
    }

    // The values that a block of k needs in addition to its operands: the scales of the weight, and the descriptors
    // of a stage.
    struct Block {
        float weights[ScaleBlocks];
        u64 left, right;
        u32 rows;      // address of the scales of the lane's rows
        bool arrived;  // the stage is full

        __device__ __forceinline__ void prepare(ManyMath& math, i32 block, const Cursor& ring) {
#pragma unroll
            for (int i = 0; i < ScaleBlocks; ++i) {
                weights[i] = math.scales[i].at(block);
            }
            left = ptx::operand_128b(math.at.inputs(ring.stage) + math.group * (S::Waves * 64 * kBlockBytes));
            right = ptx::operand_128b(math.at.weights(ring.stage));
            rows = math.at.scales(ring.stage) + (math.group * (S::Waves * 64) + math.warp * 16 + math.lane / 4) * 4;
            arrived = barrier_test(math.at.full(ring.stage), ring.parity);
        }
    };

    // Computes the sum of a part in e4m3 with one set of accumulators. While a wave of 64 rows is scaled and added,
    // the products of the other warpgroup run. The values for the next block are computed while products run, because
    // instructions between the end of a warpgroup's products and its next products can leave the tensor cores idle.
    template <int Offset>
    __device__ __forceinline__ void sum_waves(float (&sum)[S::Waves][Sums], Span span) {
#pragma unroll
        for (int w = 0; w < S::Waves; ++w) {
#pragma unroll
            for (int i = 0; i < Sums; ++i) {
                sum[w][i] = 0;
            }
        }
        float d[Sums];
        Block now;
        now.prepare(*this, span.begin, done);
#pragma unroll 1
        for (i32 block = span.begin; block < span.end; ++block) {
            if (!now.arrived) {
                ptx::barrier_wait(at.full(done.stage), done.parity);
            }
            Block next = now;
#pragma unroll
            for (int w = 0; w < S::Waves; ++w) {
                ptx::mma_pin(d);
                ptx::mma_fence();
                multiply_block<typename S::Type, N>(d, now.left + w * (64 * kBlockBytes / 16), now.right, false);
                ptx::mma_commit();
                const float upper = ptx::load_float(now.rows + w * 256),
                            lower = ptx::load_float(now.rows + w * 256 + 32);
                float factors[ScaleBlocks][2];
#pragma unroll
                for (int i = 0; i < ScaleBlocks; ++i) {
                    factors[i][0] = __fmul_rn(upper, now.weights[i]);
                    factors[i][1] = __fmul_rn(lower, now.weights[i]);
                }
                if (w == S::Waves - 1 && block + 1 < span.end) {
                    Cursor further = done;
                    further.advance(S::Stages);
                    next.prepare(*this, block + 1, further);
                }
                ptx::mma_wait<0>();
                ptx::mma_pin(d);
                if (w == S::Waves - 1) {
                    free_stage();
                }
#pragma unroll
                for (int i = 0; i < Sums; ++i) {
                    sum[w][i] = __fmaf_rn(factors[(Offset + i / 4 * 8) / kScaleRows][i / 2 % 2], d[i], sum[w][i]);
                }
            }
            now = next;
        }
    }

    // Computes the sum of a part in e4m3 for a tile whose first column is `offset` columns into a weight scale block.
    // The loop is instantiated for each offset that tiles can have.
    template <int Offset>
    __device__ __forceinline__ void sum_from(float (&sum)[S::Waves][Sums], i32 offset, Span span) {
        constexpr int kNext = Offset + (N % 128 == 0 ? 128 : N % 64 == 0 ? 64 : 16);
        if (kNext >= kScaleRows || offset == Offset) {
            sum_waves<Offset>(sum, span);
        } else if constexpr (kNext < kScaleRows) {
            sum_from<kNext>(sum, offset, span);
        }
    }

    __device__ __forceinline__ void sum_part(float (&sums)[S::Waves][Sums], const ManyTile& tile, Span span) {
        float (&sum)[Sums] = sums[0];
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
        } else if constexpr (S::Deep) {
            sum_deep(sum, span);
        } else {
            sum_from<0>(sums, tile.column % kScaleRows, span);
        }
    }

    // Adds the sum of the earlier parts, which is in shared memory, to sum, and stores the new sum there unless this is
    // the last part.
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

    // Addresses of the sums of parts for two waves. The sums of the first wave use the warp's result memory of both
    // waves; the sums of the second wave are in global memory, [Sums / 4][256 threads] of 16 bytes per thread block.
    __device__ __forceinline__ u32 place_of(int piece) const {
        return result_of(piece / (Sums / 8)) + piece % (Sums / 8) * 512 + lane * 16;
    }
    __device__ __forceinline__ float4* away() const {
        return reinterpret_cast<float4*>(args.sums) + static_cast<i64>(blockIdx.x) * (Sums / 4 * 256) + threadIdx.x;
    }

    __device__ __forceinline__ void keep_waves(const float (&sum)[S::Waves][Sums]) {
#pragma unroll
        for (int i = 0; i < Sums / 4; ++i) {
            const float *v = sum[0] + 4 * i, *w = sum[S::Waves - 1] + 4 * i;
            ptx::store_own(away() + i * 256, make_float4(w[0], w[1], w[2], w[3]));
            ptx::store_vector(place_of(i), __float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                              __float_as_uint(v[3]));
        }
    }

    // Adds the sums of the earlier parts to the sums of both waves. The sums of the second wave are being loaded while
    // `between` runs, which may write the first wave.
    template <class F>
    __device__ __forceinline__ void add_waves(float (&sum)[S::Waves][Sums], F between) {
        float4 before[Sums / 4];
#pragma unroll
        for (int i = 0; i < Sums / 4; ++i) {
            before[i] = ptx::load_own(away() + i * 256);
        }
#pragma unroll
        for (int i = 0; i < Sums / 4; ++i) {
            const uint4 v = ptx::load_vector(place_of(i));
            float* to = sum[0] + 4 * i;
            to[0] = __fadd_rn(__uint_as_float(v.x), to[0]);
            to[1] = __fadd_rn(__uint_as_float(v.y), to[1]);
            to[2] = __fadd_rn(__uint_as_float(v.z), to[2]);
            to[3] = __fadd_rn(__uint_as_float(v.w), to[3]);
        }
        __syncwarp();
        between();
#pragma unroll
        for (int i = 0; i < Sums / 4; ++i) {
            float* to = sum[S::Waves - 1] + 4 * i;
            to[0] = __fadd_rn(before[i].x, to[0]);
            to[1] = __fadd_rn(before[i].y, to[1]);
            to[2] = __fadd_rn(before[i].z, to[2]);
            to[3] = __fadd_rn(before[i].w, to[3]);
        }
    }

    // Returns the address in shared memory of a warp's results of a wave.
    __device__ __forceinline__ u32 result_of(int wave) const {
        return at.out() + ((group * S::Waves + wave) * 4 + warp) * (S::OutBytes / (8 * S::Waves));
    }

    // A warp writes its 16 rows: float32 directly from registers, bf16 through shared memory and the copy engine in
    // boxes of 64 columns.
    __device__ __forceinline__ void write(float (&sum)[Sums], const ManyTile& tile, i32 wave) {
        // If Away is set, there are not enough registers for factors.
        if (S::Type::Scaled && !S::Away && args.factors != nullptr) {
#pragma unroll
            for (int e = 0; e < N / 8; ++e) {
                const float2 f = factors_of(args, tile.column + e * 8 + static_cast<i32>(lane % 4) * 2);
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    sum[4 * e + i] = __fmul_rn(sum[4 * e + i], i % 2 == 0 ? f.x : f.y);
                }
            }
        }
        const i32 top = tile.row + (group * S::Waves + wave) * 64 + static_cast<i32>(warp) * 16;
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
        const u32 boxes = result_of(wave), row = lane % 16;
#pragma unroll
        for (int e = 0; e < N / 8; e += 2) {
            const u32 words[4] = {
                ptx::pack_bf16(sum[4 * e], sum[4 * e + 1]), ptx::pack_bf16(sum[4 * e + 2], sum[4 * e + 3]),
                ptx::pack_bf16(sum[4 * e + 4], sum[4 * e + 5]), ptx::pack_bf16(sum[4 * e + 6], sum[4 * e + 7])};
            const u32 piece = S::Boxes ? e / 8 * 2048 + row * 128 + (((e % 8 + lane / 16) ^ (row & 7)) << 4)
                                       : row * (2 * N) + (e + lane / 16) * 16;
            ptx::store_fragments(boxes + piece, words);
        }
        ptx::fence_async_proxy();
        __syncwarp();
        if (lane == 0) {
#pragma unroll
            for (int box = 0; box < (S::Boxes ? N / 64 : 1); ++box) {
                ptx::store_3d(&args.out_map, boxes + box * 2048, tile.column + box * 64, top, tile.batch);
            }
            ptx::stores_commit();
        }
    }

    __device__ __forceinline__ void run() {
        ManyTiles<S> tiles(args);
        float ahead[ScaleBlocks] = {};     // the first weight scales of the next tile
        ManyTile tile = tiles.tile(rank);  // the next tile
        const auto fetch_ahead = [&] {
            if (S::Type::Scaled && tiles.more()) {
#pragma unroll
                for (int i = 0; i < ScaleBlocks; ++i) {
                    ahead[i] = WeightScales::fetch(scale_row(tile, i), 0, args.blocks);
                }
            }
        };
        fetch_ahead();
#pragma unroll 1
        while (tiles.more()) {
            const ManyTile now = tile;
            tiles.next += tiles.step;
            tile = tiles.tile(rank);
            if constexpr (S::Type::Scaled) {
#pragma unroll
                for (int i = 0; i < ScaleBlocks; ++i) {
                    scales[i].begin(scale_row(now, i), args.blocks, ahead[i]);
                }
                fetch_ahead();
            }
            float sum[S::Waves][Sums], kept[S::Kept ? Sums : 1];
            const i32 parts = S::Parted ? args.parts : 1;
#pragma unroll 1
            for (i32 p = 0; p < parts; ++p) {
                sum_part(sum, now, span_of(args, p));
                if (p == 0) {  // the warp's shared memory is free when the copy engine has read its last results
                    if (lane == 0) {
                        ptx::stores_read();
                    }
                    __syncwarp();
                }
                if constexpr (S::Kept) {
#pragma unroll
                    for (int i = 0; i < Sums; ++i) {
                        kept[i] = p == 0 ? sum[0][i] : __fadd_rn(kept[i], sum[0][i]);
                        sum[0][i] = kept[i];
                    }
                } else if constexpr (S::Away) {
                    if (p == parts - 1) {
                        add_waves(sum, [&] { write(sum[0], now, 0); });
                        write(sum[1], now, 1);
                    } else {
                        if (p > 0) {
                            add_waves(sum, [] {});
                        }
                        keep_waves(sum);
                    }
                } else if constexpr (S::Parted) {
                    add_part(sum[0], p == 0, p == parts - 1);
                }
            }
            if constexpr (!S::Away) {
#pragma unroll
                for (int w = 0; w < S::Waves; ++w) {
                    write(sum[w], now, w);
                }
            }
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
        ptx::registers_shrink<40>();
        if (warp == 8 && threadIdx.x % 32 == 0) {
            wait_for_inputs(args);
            feed_many(args, at, rank);
            ptx::release_next_kernel();
            end_after_previous(args);
        }
        __syncwarp();
    } else {
        ptx::registers_grow<232>();
        ManyMath<S>(args, at, rank, warp / 4).run();
    }
    ptx::cluster_sync();  // the other thread block may still copy to this one and arrive at its barriers
}

}  // namespace sparrow_product
