// Matrix products of few rows with a small weight whose k has four parts.
//
// In:    weight e4m3 [columns, k]; input e4m3 [rows, k], up to 64 or 128 rows; scales (args.h).
// Out:   bf16 or f32 [rows, columns].
// Block: 64 input rows per warpgroup are the rows of the tensor-core tile, and 32 weight rows its columns. Two blocks
//        form a cluster; each sums two of the parts, one after the other. The kernel for few rows (few.cuh) has four
//        blocks in a cluster for tiles of 64 weight rows; only 32 such clusters fit on 132 SMs, so that the last of
//        33 would have to share SMs with others. One warp issues copies into a ring of stages. It always loads
//        args.copied input rows; rows beyond the input are multiplied but not written. The blocks exchange sums: one
//        adds the upper eight of every 16 rows, the other the lower eight.
// Bytes: weights are read once from memory; inputs once per tile from L2.
#pragma once

#include "sm90/product/config.h"

namespace sparrow_product {

template <int RowGroups>
struct NarrowShape {
    static constexpr int Groups = RowGroups, Rows = 64 * Groups, Columns = 32;
    static constexpr int Parts = 4, Each = 2;  // parts of k: all, and those of a thread block
    static constexpr int WeightBytes = Columns * kBlockBytes, InputBytes = Rows * kBlockBytes;
    static constexpr int StageBytes = WeightBytes + InputBytes;
    static constexpr int Threads = 128 * Groups + 32;
    static constexpr int Sums = Columns / 2;                    // sums per lane
    static constexpr int SumBytes = 128 * Groups * Sums / 2 * 4;  // sums of a part for half of the rows
    static_assert(StageBytes % 1024 == 0, "stages are whole swizzle atoms");
};

constexpr int kNarrowScaleBox = 8;  // blocks of k whose input scales one copy loads

// Shared memory holds the ring of stages, the sums that the other thread block sends, barriers, and the scales of the
// inputs [blocks of k of this thread block's parts, in whole boxes][copied rows].
struct NarrowBarriers {
    u64 full[kMaxStages], empty[kMaxStages];
    u64 sums, scales;
};

template <class S>
struct NarrowPlaces {
    u32 ring, sums, barriers, scales;
    u32 scale_bytes;  // bytes of the input scales of a block of k

    __device__ __forceinline__ explicit NarrowPlaces(const ProductArgs& args) : scale_bytes(args.copied * 4) {
        extern __shared__ u8 dynamic_shared[];
        ring = (ptx::shared_address(dynamic_shared) + 1023) / 1024 * 1024;
        sums = ring + args.stages * S::StageBytes;
        barriers = sums + S::Each * S::SumBytes;
        scales = (barriers + sizeof(NarrowBarriers) + 127) / 128 * 128;
    }
    __device__ __forceinline__ u32 weights(u32 stage) const { return ring + stage * S::StageBytes; }
    __device__ __forceinline__ u32 inputs(u32 stage) const { return weights(stage) + S::WeightBytes; }
    __device__ __forceinline__ u32 full(u32 stage) const { return barriers + stage * 8; }
    __device__ __forceinline__ u32 empty(u32 stage) const { return barriers + (kMaxStages + stage) * 8; }
    __device__ __forceinline__ u32 sums_arrived() const { return barriers + 2 * kMaxStages * 8; }
    __device__ __forceinline__ u32 scales_arrived() const { return barriers + (2 * kMaxStages + 1) * 8; }
};

// The work of a thread block: its tile of weight rows, and its blocks of k.
struct NarrowTile {
    i32 column;
    Span span;  // blocks of k of both parts

    __device__ __forceinline__ explicit NarrowTile(const ProductArgs& args) {
        const i32 rank = blockIdx.x % 2;  // rank in the cluster
        column = static_cast<i32>(blockIdx.x) / 2 * 32;
        span = {span_of(args, 2 * rank).begin, span_of(args, 2 * rank + 1).end};
    }
};

template <class S>
__device__ __forceinline__ void ask_narrow_weights(const ProductArgs& args, const NarrowPlaces<S>& at,
                                                   const NarrowTile& tile, u32 stage, i32 block) {
    ptx::barrier_expect(at.full(stage), S::WeightBytes + args.copied * kBlockBytes);
    ptx::load_3d(at.weights(stage), &args.weight_map, at.full(stage), block * E4m3::BlockColumns, tile.column, 0,
                 ptx::kEvictFirst);
}

template <class S>
__device__ __forceinline__ void ask_narrow_inputs(const ProductArgs& args, const NarrowPlaces<S>& at, u32 stage,
                                                  i32 block) {
    ptx::load_3d(at.inputs(stage), &args.input_map, at.full(stage), block * E4m3::BlockColumns, 0, 0,
                 ptx::kEvictLast);
}

// The copy thread, after it has issued the first weights.
template <class S>
__device__ __forceinline__ void feed_narrow(const ProductArgs& args, const NarrowPlaces<S>& at,
                                            const NarrowTile& tile) {
    const u32 box_bytes = kNarrowScaleBox * at.scale_bytes;
    const i32 count = tile.span.end - tile.span.begin, ahead = min(args.ahead, count);
    const u32 boxes = (count + kNarrowScaleBox - 1) / kNarrowScaleBox;
    wait_for_inputs(args);
    if (args.leads != 0) {
        ptx::release_next_kernel();
    }
#pragma unroll 1
    for (i32 i = 0; i < ahead; ++i) {
        ask_narrow_inputs(args, at, i, tile.span.begin + i);
        if (i == 0) {
            ptx::barrier_expect(at.scales_arrived(), boxes * box_bytes);
#pragma unroll 1
            for (u32 box = 0; box < boxes; ++box) {
                ptx::load_2d(at.scales + box * box_bytes, &args.scale_map, at.scales_arrived(), 0,
                             tile.span.begin + box * kNarrowScaleBox, ptx::kEvictLast);
            }
        }
    }
    Cursor ring{static_cast<u32>(ahead) - 1, 0};
    ring.advance(args.stages);
#pragma unroll 1
    for (i32 i = ahead; i < count; ++i) {
        ptx::barrier_wait(at.empty(ring.stage), ring.parity ^ 1);
        ask_narrow_weights(args, at, tile, ring.stage, tile.span.begin + i);
        ask_narrow_inputs(args, at, ring.stage, tile.span.begin + i);
        ring.advance(args.stages);
    }
    ptx::release_next_kernel();
    end_after_previous(args);
}

// A math warpgroup: 64 input rows.
template <class S>
struct NarrowMath {
    static constexpr int Sums = S::Sums;

    const ProductArgs& args;
    const NarrowPlaces<S> at;
    const NarrowTile tile;
    const u32 group;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    Cursor ask, done;  // ask: stage whose products are issued next; done: stage whose products complete next
    WeightScales scales;

    __device__ __forceinline__ NarrowMath(const ProductArgs& a, const NarrowPlaces<S>& p, const NarrowTile& t, u32 g)
        : args(a), at(p), tile(t), group(g) {}

    __device__ __forceinline__ void ask_products(float (&d)[Sums]) {
        ptx::barrier_wait(at.full(ask.stage), ask.parity);
        ask_block<E4m3, S::Columns>(d, at.inputs(ask.stage) + group * (64 * kBlockBytes), at.weights(ask.stage), false);
        ask.advance(args.stages);
    }

    // Waits until at most Pending groups of products are incomplete, releases the stage of the completed group, and
    // adds its products times the scales of block i of this thread block's parts to sum.
    template <int Pending>
    __device__ __forceinline__ void promote(float (&sum)[Sums], float (&d)[Sums], i32 i) {
        const u32 rows = at.scales + i * at.scale_bytes + (group * 64 + warp * 16 + lane / 4) * 4;
        const float weight = scales.at(i);
        const float factors[2] = {__fmul_rn(ptx::load_float(rows), weight),
                                  __fmul_rn(ptx::load_float(rows + 32), weight)};
        ptx::mma_wait<Pending>();
        ptx::mma_pin(d);
        arrive_warp(at.empty(done.stage));
        done.advance(args.stages);
#pragma unroll
        for (int k = 0; k < Sums; ++k) {
            sum[k] = __fmaf_rn(factors[k / 2 % 2], d[k], sum[k]);
        }
    }

    // Computes the sum of blocks [first, last) of this thread block's parts, with two sets of accumulators.
    __device__ __forceinline__ void sum_part(float (&sum)[Sums], i32 first, i32 last) {
        float d0[Sums], d1[Sums];
#pragma unroll
        for (int k = 0; k < Sums; ++k) {
            sum[k] = 0;
        }
        ask_products(d0);
        i32 i = first + 1;
#pragma unroll 1
        for (; i + 1 < last; i += 2) {
            ask_products(d1);
            promote<1>(sum, d0, i - 1);
            ask_products(d0);
            promote<1>(sum, d1, i);
        }
        if (i < last) {
            ask_products(d1);
            promote<1>(sum, d0, i - 1);
            promote<0>(sum, d1, i);
        } else {
            promote<0>(sum, d0, i - 1);
        }
    }

    __device__ __forceinline__ void run() {
        const i32 count = tile.span.end - tile.span.begin;
        const float* row = args.weight_scales +
                           static_cast<i64>(min(tile.column, args.columns - 1) / kScaleRows) * args.blocks +
                           tile.span.begin;
        scales.begin(row, count, WeightScales::fetch(row, 0, count));
        ptx::barrier_wait(at.scales_arrived(), 0);
        const i32 middle = (args.blocks + S::Parts - 1) / S::Parts;  // blocks of the first part
        float part[S::Each][Sums];
        sum_part(part[0], 0, middle);
        sum_part(part[1], middle, count);

        // This thread block adds the parts of eight of every 16 rows: of the first eight if its rank is 0, otherwise of
        // the last eight.
        const u32 rank = blockIdx.x % 2, mine = at.sums + (group * 128 + threadIdx.x % 128) * 16;
        ptx::cluster_wait();
        const u32 there = ptx::peer_address(mine, rank ^ 1), arrived = ptx::peer_address(at.sums_arrived(), rank ^ 1);
#pragma unroll
        for (int p = 0; p < S::Each; ++p) {
#pragma unroll
            for (int e = 0; e < Sums / 8; ++e) {  // groups of 8 columns of the rows that the other thread block adds
                const float* v = part[p] + 8 * e;
                const bool upper = rank != 0;  // rank 1 keeps the lower rows and sends the upper rows
                const uint4 words =
                    make_uint4(__float_as_uint(upper ? v[0] : v[2]), __float_as_uint(upper ? v[1] : v[3]),
                               __float_as_uint(upper ? v[4] : v[6]), __float_as_uint(upper ? v[5] : v[7]));
                ptx::peer_send(there + (p * (Sums / 8) + e) * (S::SumBytes / (Sums / 8)), words, arrived);
            }
        }
        ptx::barrier_wait(at.sums_arrived(), 0);
        const i32 input = static_cast<i32>(group * 64 + warp * 16 + lane / 4 + rank * 8);
#pragma unroll
        for (int e = 0; e < Sums / 8; ++e) {
            float own[S::Each][4], other[S::Each][4], sum[4];
#pragma unroll
            for (int p = 0; p < S::Each; ++p) {
                const uint4 v = ptx::load_vector(mine + (p * (Sums / 8) + e) * (S::SumBytes / (Sums / 8)));
                other[p][0] = __uint_as_float(v.x);
                other[p][1] = __uint_as_float(v.y);
                other[p][2] = __uint_as_float(v.z);
                other[p][3] = __uint_as_float(v.w);
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    const int at_upper = 8 * e + k / 2 * 4 + k % 2;
                    own[p][k] = rank == 0 ? part[p][at_upper] : part[p][at_upper + 2];
                }
            }
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float a = rank == 0 ? own[0][k] : other[0][k], b = rank == 0 ? own[1][k] : other[1][k];
                const float c = rank == 0 ? other[0][k] : own[0][k], d = rank == 0 ? other[1][k] : own[1][k];
                sum[k] = __fadd_rn(__fadd_rn(__fadd_rn(a, b), c), d);
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const i32 column = tile.column + (2 * e + half) * 8 + static_cast<i32>(lane % 4) * 2;
                if (input < args.rows && column < args.columns) {
                    if (args.factors != nullptr) {
                        const float2 f = factors_of(args, column);
                        sum[2 * half] = __fmul_rn(sum[2 * half], f.x);
                        sum[2 * half + 1] = __fmul_rn(sum[2 * half + 1], f.y);
                    }
                    const i64 place = input * args.out_stride + column;
                    if (args.out_f32) {
                        *reinterpret_cast<float2*>(static_cast<float*>(args.out) + place) =
                            make_float2(sum[2 * half], sum[2 * half + 1]);
                    } else {
                        *reinterpret_cast<u32*>(static_cast<u16*>(args.out) + place) =
                            ptx::pack_bf16(sum[2 * half], sum[2 * half + 1]);
                    }
                }
            }
        }
    }
};

template <class S>
__device__ __forceinline__ void multiply_narrow(const ProductArgs& args) {
    const NarrowPlaces<S> at(args);
    const NarrowTile tile(args);
    const u32 warp = __shfl_sync(ptx::kFullMask, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (warp == 4 * S::Groups) {
        if (lane == 1) {  // lane 1 prefetches the other maps; the map of the weights is used at once
            ptx::prefetch_map(&args.input_map);
        }
        if (lane == 2) {
            ptx::prefetch_map(&args.scale_map);
        }
        if (lane < static_cast<u32>(args.stages)) {
            ptx::barrier_init(at.full(lane), 1);
            ptx::barrier_init(at.empty(lane), 4 * S::Groups);
        }
        if (lane == 0) {
            ptx::barrier_init(at.scales_arrived(), 1);
            ptx::barrier_init(at.sums_arrived(), 1);
            ptx::barrier_expect(at.sums_arrived(), S::Each * S::SumBytes);
        }
        ptx::barrier_init_fence();
        __syncwarp();
        if (lane == 0) {
            const i32 count = min(args.ahead, tile.span.end - tile.span.begin);
#pragma unroll 1
            for (i32 i = 0; i < count; ++i) {
                ask_narrow_weights(args, at, tile, i, tile.span.begin + i);
            }
        }
        __syncwarp();
    }
    __syncthreads();
    ptx::cluster_arrive();
    if (warp == 4 * S::Groups) {
        if (lane == 0) {
            feed_narrow(args, at, tile);
        }
        __syncwarp();
        ptx::cluster_wait();
    } else {
        NarrowMath<S>(args, at, tile, S::Groups == 1 ? 0 : warp / 4).run();
    }
}

}  // namespace sparrow_product
