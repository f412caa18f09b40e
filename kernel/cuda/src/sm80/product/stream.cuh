// Matrix products of up to 16 rows, portable kernels. Operands are those of product.cuh, and results are bitwise equal.
// Their time is bound by weight bandwidth.
//
// Block: Eight warps with tiles of 16 columns. The k of a tile is divided among Along warps, in blocks of 128 bytes
//        round robin, so a thread block has 8 / Along tiles. Weights are loaded from memory to registers, Depth blocks
//        ahead, because no other warp needs them. Weights are the left operand of the matrix unit; rows are the right
//        operand, eight at a time.
// e4m3:  Rows are widened once for all warps, one round of Along blocks ahead. They are stored in shared memory in the
//        order of the matrix unit. The weights are checked for NaN once per row and block.
// Bits:  A warp sums a block of k from zero. The sums of Along blocks are written to shared memory. One thread per
//        element multiplies them by their scales and adds them in the order of k, as every tile shape does.
#pragma once

#include "sm80/codes.cuh"
#include "sm80/product/product.cuh"
#include "sm90/product/args.h"
#include "smxx/num.cuh"

namespace portable {

template <class T, int AlongWarps, int RowTiles, int BlocksAhead>
struct StreamShape {
    using Type = T;
    static constexpr int Along = AlongWarps, Beside = 8 / AlongWarps, Tiles = RowTiles, Depth = BlocksAhead;
    static constexpr int Threads = 256, Columns = 16 * Beside, Rows = 8 * RowTiles;
    static constexpr int Stride = 20;  // floats of a row of 16 columns, with padding against bank conflicts
    static constexpr int SumFloats = Rows * Stride;  // sums of a warp: [rows, 16]
    static constexpr int RowBytes = 256;             // bytes of a row and block of e4m3, widened
    // Sums of two rounds. For e4m3, also the widened rows and the products of scales.
    static constexpr u32 SumBytes = 2 * 8 * SumFloats * 4, InputBytes = T::Scaled ? 2 * Along * Rows * RowBytes : 0,
                         SharedBytes = SumBytes + InputBytes + (T::Scaled ? 4 * Along * Rows * 4 : 0);
    static_assert(SharedBytes <= 101376, "more shared memory than a block of a consumer card can have");
    static constexpr int Elements = (Columns * Rows + Threads - 1) / Threads;  // elements of the result per thread
};

// Loads 16 bytes that are read once.
__device__ __forceinline__ uint4 load_once(const u8* at, bool valid) {
    uint4 v = make_uint4(0, 0, 0, 0);
    if (valid) {
        asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(at));
    }
    return v;
}

// Shared memory to which eight warps write the sums of their blocks in a round. Each thread then adds the sums of its
// elements in the order of k.
template <class S>
struct StreamSums {
    using T = typename S::Type;
    float* sums;
    // [4, Along, Rows] scales of four rounds: fast warps write the scales of a next round before slow warps have read
    // those of this round.
    const float* scales;
    float total[S::Elements];

    __device__ __forceinline__ void put(i32 round, const float (&part)[S::Tiles][4]) {
        const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
        float* const mine = sums + ((round & 1) * 8 + warp) * S::SumFloats + 2 * quad * S::Stride + group;
#pragma unroll
        for (int n = 0; n < S::Tiles; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                mine[(8 * n + i % 2) * S::Stride + 8 * (i / 2)] = part[n][i];
            }
        }
    }
    // Computes the tile, row and column of element e of this thread. Returns false if there is no such element.
    static __device__ __forceinline__ bool element(int e, u32& tile, u32& row, u32& column) {
        const u32 at = e * S::Threads + threadIdx.x;
        tile = at / (16 * S::Rows), row = at / 16 % S::Rows, column = at % 16;
        return tile < S::Beside;
    }
    __device__ __forceinline__ void add(i32 round, i32 blocks) {
#pragma unroll
        for (int e = 0; e < S::Elements; ++e) {
            u32 tile, row, column;
            if (!element(e, tile, row, column)) {
                continue;
            }
            const float* of = sums + ((round & 1) * 8 + tile * S::Along) * S::SumFloats + row * S::Stride + column;
            const float* times = scales + ((round & 3) * S::Along) * S::Rows + row;
#pragma unroll
            for (int w = 0; w < S::Along; ++w) {
                if (round * S::Along + w < blocks) {
                    if constexpr (T::Scaled) {
                        total[e] = fmaf(of[w * S::SumFloats], times[w * S::Rows], total[e]);
                    } else {
                        total[e] += of[w * S::SumFloats];
                    }
                }
            }
        }
    }
    __device__ __forceinline__ void store(const ProductArgs& args, i32 first_column, i32 batch) const {
#pragma unroll
        for (int e = 0; e < S::Elements; ++e) {
            u32 tile, row, column;
            const bool there = element(e, tile, row, column);
            const i32 to = first_column + tile * 16 + column;
            if (!there || static_cast<i32>(row) >= args.rows || to >= args.columns) {
                continue;
            }
            const i64 at = batch * args.out_batch + row * args.out_stride + to;
            if (args.out_f32) {
                static_cast<float*>(args.out)[at] = total[e];
            } else {
                static_cast<u16*>(args.out)[at] = static_cast<u16>(pack_bf16_fast(total[e], 0.0f));
            }
        }
    }
};

template <class S>
__device__ __forceinline__ void stream_rows(const ProductArgs& args) {
    using T = typename S::Type;
    extern __shared__ __align__(128) u8 dynamic_shared[];
    u8* const rows_shared = dynamic_shared + S::SumBytes;
    float* const scales_shared = reinterpret_cast<float*>(rows_shared + S::InputBytes);
    StreamSums<S> sums = {reinterpret_cast<float*>(dynamic_shared), scales_shared, {}};
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
    const i32 along = warp % S::Along, batch = blockIdx.z;
    const i32 tile_column = blockIdx.y * S::Columns, first_column = tile_column + warp / S::Along * 16;
    const PlainMap &input = plain(args.input_map), &weight = plain(args.weight_map);
    const i32 k_bytes = static_cast<i32>(input.dims[0]) * T::Bytes;
    // Columns and rows beyond the matrix repeat the last ones, and their sums are discarded.
    const u8* weights[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const i32 column = min(first_column + static_cast<i32>(group) + 8 * i, args.columns - 1);
        weights[i] = weight.base + batch * weight.strides[1] + column * weight.strides[0] + along * kBlockBytes +
                     quad * 32;
    }
    const u8* const inputs = input.base + batch * input.strides[1];
    const i32 rounds = (args.blocks + S::Along - 1) / S::Along;
    // Bytes of k from this lane's first byte to the end.
    const i32 own_bytes = k_bytes - along * static_cast<i32>(kBlockBytes) - quad * 32;
    constexpr i32 kRoundBytes = S::Along * kBlockBytes;
    uint4 held[S::Depth][2][2];  // weights: 32 bytes of two columns for each of Depth blocks
    const auto ask_weights = [&](uint4(&to)[2][2], i32 round) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                to[i][half] = load_once(weights[i] + static_cast<i64>(round) * kRoundBytes + 16 * half,
                                        round * kRoundBytes + 16 * half < own_bytes);
            }
        }
    };

    // For e4m3: the pieces of 16 codes that this thread widens in a round. A row has Along * 8 pieces in a round.
    constexpr int kPieces = T::Scaled ? S::Rows * S::Along * 8 : 0, kOwn = (kPieces + S::Threads - 1) / S::Threads;
    constexpr int kScales = T::Scaled ? (S::Rows * S::Along + S::Threads - 1) / S::Threads : 0;
    uint4 coming[T::Scaled ? kOwn : 1];
    float2 coming_scale[T::Scaled ? kScales : 1];  // scale of the weights, and scale of the row
    // For bf16: the input rows of the next block of k.
    uint4 right[S::Tiles][2];
    const auto ask_inputs = [&](i32 round) {
        if constexpr (T::Scaled) {
#pragma unroll
            for (int i = 0; i < kOwn; ++i) {
                const i32 p = i * S::Threads + threadIdx.x, row = p / (S::Along * 8);
                const i32 at = round * kRoundBytes + p % (S::Along * 8) * 16;
                coming[i] = row < args.rows && at < k_bytes && row < S::Rows
                                ? __ldg(reinterpret_cast<const uint4*>(inputs + row * input.strides[0] + at))
                                : make_uint4(0, 0, 0, 0);
            }
#pragma unroll
            for (int i = 0; i < kScales; ++i) {
                const i32 p = i * S::Threads + threadIdx.x, row = p % S::Rows, block = round * S::Along + p / S::Rows;
                if (p < S::Rows * S::Along && row < args.rows && block < args.blocks) {
                    const PlainMap& scales = plain(args.scale_map);
                    coming_scale[i].x =
                        __ldg(args.weight_scales + scale_row(args, batch, tile_column) * args.blocks + block);
                    const i64 line = static_cast<i64>(batch) * args.blocks + block;
                    coming_scale[i].y =
                        __ldg(reinterpret_cast<const float*>(scales.base + line * scales.strides[0]) + row);
                }
            }
        } else {
#pragma unroll
            for (int n = 0; n < S::Tiles; ++n) {
                const i32 row = min(8 * n + static_cast<i32>(group), args.rows - 1);
                const u8* at = inputs + row * input.strides[0] + along * kBlockBytes + quad * 32;
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    right[n][half] = round * kRoundBytes + 16 * half < own_bytes
                                         ? __ldg(reinterpret_cast<const uint4*>(
                                               at + static_cast<i64>(round) * kRoundBytes + 16 * half))
                                         : make_uint4(0, 0, 0, 0);
                }
            }
        }
    };
    // The position of piece `piece` of the four pieces that quad `of` multiplies in a row and block. Pieces that the
    // quads read together are adjacent, and are rotated by the row number so that reads have no bank conflicts.
    const u32 rows_at = shared_address(rows_shared);
    const auto place = [&](i32 round, u32 block, u32 row, u32 of, u32 piece) {
        const u32 at = (piece * 4 + of) ^ (row & 1) * 4;
        const u32 line = ((round & 1) * S::Along + block) * S::Rows + row;
        return rows_at + line * S::RowBytes + at * 16;
    };
    const auto put_inputs = [&](i32 round) {
        if constexpr (T::Scaled) {
#pragma unroll
            for (int i = 0; i < kOwn; ++i) {
                const u32 p = i * S::Threads + threadIdx.x, row = p / (S::Along * 8), block = p / 8 % S::Along;
                const u32 c = p % 8;
                if (static_cast<i32>(row) < args.rows && row < S::Rows) {
                    u32 w[8];
#pragma unroll
                    for (int step = 0; step < 4; ++step) {
                        T::words(coming[i], step, w[2 * step], w[2 * step + 1]);
                    }
                    store_shared(place(round, block, row, c / 2, c % 2 * 2), make_uint4(w[0], w[1], w[2], w[3]));
                    store_shared(place(round, block, row, c / 2, c % 2 * 2 + 1), make_uint4(w[4], w[5], w[6], w[7]));
                }
            }
#pragma unroll
            for (int i = 0; i < kScales; ++i) {
                const i32 p = i * S::Threads + threadIdx.x;
                if (p < S::Rows * S::Along) {
                    scales_shared[(round & 3) * S::Along * S::Rows + p] =
                        __fmul_rn(__fmul_rn(coming_scale[i].x, coming_scale[i].y), kCodeUp);
                }
            }
        }
    };

#pragma unroll
    for (int d = 0; d < S::Depth; ++d) {
        ask_weights(held[d], d);
    }
    ask_inputs(0);
    if constexpr (T::Scaled) {
        put_inputs(0);
        __syncthreads();
    }
    const i32 last_row = args.rows - 1;
    for (i32 first = 0; first < rounds; first += S::Depth) {
#pragma unroll
        for (int d = 0; d < S::Depth; ++d) {
            const i32 round = first + d;
            if (round >= rounds) {
                break;
            }
            float part[S::Tiles][4] = {};
            if constexpr (T::Scaled) {
                ask_inputs(round + 1);
                const u32 bad[2] = {nans_of(held[d][0][0]) | nans_of(held[d][0][1]),
                                    nans_of(held[d][1][0]) | nans_of(held[d][1][1])};
#pragma unroll
                for (int pair = 0; pair < 4; ++pair) {  // pairs of steps
                    uint4 other[S::Tiles];
#pragma unroll
                    for (int n = 0; n < S::Tiles; ++n) {
                        const u32 row = min(8 * n + static_cast<i32>(group), last_row);
                        other[n] = load_shared(place(round, along, row, quad, pair));
                    }
#pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        const int step = 2 * pair % 4 + i;
                        u32 left[4];
                        widen_numbers(word_of(held[d][0][pair / 2], step), left[0], left[2]);
                        widen_numbers(word_of(held[d][1][pair / 2], step), left[1], left[3]);
#pragma unroll
                        for (int n = 0; n < S::Tiles; ++n) {
                            const u32 now[2] = {i == 0 ? other[n].x : other[n].z, i == 0 ? other[n].y : other[n].w};
                            T::multiply(part[n], left, now);
                        }
                    }
                }
                if (__any_sync(ptx::kFullMask, ((bad[0] | bad[1]) & kNaNs) != 0)) {  // rare: some code is a NaN
                    spoil(bad[0], bad[1], part);
                }
            } else {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
#pragma unroll
                    for (int step = 0; step < T::Steps; ++step) {
                        u32 left[4];
                        T::words(held[d][0][half], step, left[0], left[2]);
                        T::words(held[d][1][half], step, left[1], left[3]);
#pragma unroll
                        for (int n = 0; n < S::Tiles; ++n) {
                            u32 other[2];
                            T::words(right[n][half], step, other[0], other[1]);
                            T::multiply(part[n], left, other);
                        }
                    }
                }
            }
            ask_weights(held[d], round + S::Depth);
            sums.put(round, part);
            if constexpr (T::Scaled) {
                put_inputs(round + 1);
            } else {
                ask_inputs(round + 1);
            }
            __syncthreads();  // all sums of this round are written, and those of the previous round are read
            sums.add(round, args.blocks);
        }
    }
    sums.store(args, tile_column, batch);
}

}  // namespace portable

// Defines a kernel and the dynamic shared memory of its launch.
#define PORTABLE_STREAM(name, blocks_of_sm, ...)                                                           \
    extern "C" __device__ const u32 name##_shared = portable::StreamShape<__VA_ARGS__>::SharedBytes;       \
    extern "C" __global__ void __launch_bounds__(256, blocks_of_sm)                                        \
        name(const __grid_constant__ ProductArgs args) {                                                   \
        portable::stream_rows<portable::StreamShape<__VA_ARGS__>>(args);                                   \
    }
