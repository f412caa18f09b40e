// Matrix products, portable kernels: out [rows, columns] = input [rows, k] * weight [columns, k] transposed, for each
// element of a batch (arguments: sm90/product/args.h, with the plain maps of map.cuh).
//
// Block: A tile of Rows input rows by Columns weight rows. Both operands are loaded in blocks of 128 bytes of k into a
//        ring buffer of Stages in shared memory. The threads issue the copies Stages - 1 blocks ahead.
// Bits:  The sum of an element is bitwise equal in every tile shape (mma.cuh) and in stream.cuh. The matrix unit sums
//        a block of 128 bytes of k from zero. The result is added in float32 in the order of k; for e4m3 it is first
//        multiplied by the product of the two scales.
#pragma once

#include "sm80/map.cuh"
#include "sm80/mma.cuh"
#include "sm90/product/args.h"
#include "smxx/num.cuh"

namespace portable {

template <class T, int TileRows, int TileColumns, int RowWarps, int ColumnWarps, int RingStages>
struct ProductShape {
    using Type = T;
    static constexpr int Rows = TileRows, Columns = TileColumns, Stages = RingStages;
    static constexpr int Threads = 32 * RowWarps * ColumnWarps, ColumnsOfWarps = ColumnWarps;
    // Tiles of 16 x 8 per warp.
    static constexpr int RowTiles = Rows / RowWarps / 16, ColumnTiles = Columns / ColumnWarps / 8;
    static constexpr u32 StageBytes = (Rows + Columns) * kBlockBytes;
    static constexpr u32 SharedBytes = Stages * StageBytes;
    static_assert(SharedBytes <= 101376, "more shared memory than a block of a consumer card can have");
    static_assert(128 % Columns == 0, "a tile has one row of scales");
};

// Returns the row of weight scales that a column uses.
__device__ __forceinline__ i64 scale_row(const ProductArgs& args, i32 batch, i32 column) {
    return static_cast<i64>(batch) * ((args.columns + 127) / 128) + column / 128;
}

// Issues the copies of a block of both operands. Eight threads copy a row of 128 bytes. inputs and weights are the
// addresses of this thread's piece of its first row; inside tells whether it is within k.
template <class S>
__device__ __forceinline__ void fetch_block(const u8* inputs, const u8* weights, i64 input_stride, i64 weight_stride,
                                            i32 rows, i32 columns, bool inside, u32 stage) {
    constexpr int kLines = S::Threads / 8;  // rows that are copied at a time
    static_assert(S::Rows % kLines == 0 && S::Columns % kLines == 0 && kLines % 8 == 0, "rows are not divided evenly");
    const i32 line = threadIdx.x / 8;
    const u32 to = stage + swizzled(line, threadIdx.x % 8);
#pragma unroll
    for (int i = 0; i < S::Rows; i += kLines) {
        copy_16(to + i * kBlockBytes, inputs, inside && line + i < rows);
        inputs += kLines * input_stride;
    }
#pragma unroll
    for (int i = 0; i < S::Columns; i += kLines) {
        copy_16(to + (S::Rows + i) * kBlockBytes, weights, inside && line + i < columns);
        weights += kLines * weight_stride;
    }
}

template <class S>
__device__ __forceinline__ void multiply_rows(const ProductArgs& args) {
    using T = typename S::Type;
    constexpr int M = S::RowTiles, N = S::ColumnTiles;
    extern __shared__ __align__(128) u8 dynamic_shared[];
    const u32 ring = shared_address(dynamic_shared);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
    const u32 warp_row = warp / S::ColumnsOfWarps * (16 * M), warp_column = warp % S::ColumnsOfWarps * (8 * N);
    const i32 first_row = blockIdx.x * S::Rows, first_column = blockIdx.y * S::Columns, batch = blockIdx.z;
    const i32 rows = min(args.rows - first_row, S::Rows), columns = min(args.columns - first_column, S::Columns);
    const PlainMap &input = plain(args.input_map), &weight = plain(args.weight_map);
    const i64 own_row = threadIdx.x / 8;
    const i32 own_byte = threadIdx.x % 8 * 16, k_bytes = static_cast<i32>(input.dims[0]) * T::Bytes - own_byte;
    const u8* inputs = input.base + batch * input.strides[1] + (first_row + own_row) * input.strides[0] + own_byte;
    const u8* weights =
        weight.base + batch * weight.strides[1] + (first_column + own_row) * weight.strides[0] + own_byte;
    const auto fetch = [&](i32 block) {
        const i32 at = block * static_cast<i32>(kBlockBytes);
        fetch_block<S>(inputs + at, weights + at, input.strides[0], weight.strides[0], rows, columns, at < k_bytes,
                       ring + block % S::Stages * S::StageBytes);
    };

#pragma unroll
    for (int s = 0; s < S::Stages - 1; ++s) {
        if (s < args.blocks) {
            fetch(s);
        }
        copies_commit();
    }
    float total[M][N][4] = {};
    for (i32 block = 0; block < args.blocks; ++block) {
        float up[2 * M], own = 0.0f;
        if constexpr (T::Scaled) {  // the loads overlap the wait for the copies
            const PlainMap& scales = plain(args.scale_map);
            const i64 line = static_cast<i64>(batch) * args.blocks + block;
            const float* of_rows = reinterpret_cast<const float*>(scales.base + line * scales.strides[0]) + first_row;
            own = args.weight_scales[scale_row(args, batch, first_column) * args.blocks + block];
#pragma unroll
            for (int i = 0; i < 2 * M; ++i) {
                const i32 r = warp_row + 8 * i + group;
                up[i] = r < rows ? of_rows[r] : 0.0f;
            }
        }
        copies_wait<S::Stages - 2>();
        __syncthreads();  // the block has arrived, and all threads have read the previous block
        const i32 next = block + S::Stages - 1;
        if (next < args.blocks) {
            fetch(next);
        }
        copies_commit();
        const u32 stage = ring + block % S::Stages * S::StageBytes;
        float part[M][N][4] = {};
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            uint4 a[M][2], b[N];
#pragma unroll
            for (int m = 0; m < M; ++m) {
                a[m][0] = piece_at(stage, warp_row + 16 * m + group, quad, half);
                a[m][1] = piece_at(stage, warp_row + 16 * m + 8 + group, quad, half);
            }
#pragma unroll
            for (int n = 0; n < N; ++n) {
                b[n] = piece_at(stage + S::Rows * kBlockBytes, warp_column + 8 * n + group, quad, half);
            }
#pragma unroll
            for (int step = 0; step < T::Steps; ++step) {
                u32 right[N][2];
#pragma unroll
                for (int n = 0; n < N; ++n) {
                    T::words(b[n], step, right[n][0], right[n][1]);
                }
#pragma unroll
                for (int m = 0; m < M; ++m) {
                    u32 left[4];
                    T::words(a[m][0], step, left[0], left[2]);
                    T::words(a[m][1], step, left[1], left[3]);
#pragma unroll
                    for (int n = 0; n < N; ++n) {
                        T::multiply(part[m][n], left, right[n]);
                    }
                }
            }
        }
        if constexpr (T::Scaled) {
#pragma unroll
            for (int m = 0; m < M; ++m) {
                const float upper = __fmul_rn(__fmul_rn(own, up[2 * m]), kCodeUp),
                            lower = __fmul_rn(__fmul_rn(own, up[2 * m + 1]), kCodeUp);
#pragma unroll
                for (int n = 0; n < N; ++n) {
                    total[m][n][0] = fmaf(part[m][n][0], upper, total[m][n][0]);
                    total[m][n][1] = fmaf(part[m][n][1], upper, total[m][n][1]);
                    total[m][n][2] = fmaf(part[m][n][2], lower, total[m][n][2]);
                    total[m][n][3] = fmaf(part[m][n][3], lower, total[m][n][3]);
                }
            }
        } else {
#pragma unroll
            for (int i = 0; i < M * N * 4; ++i) {
                total[i / (4 * N)][i / 4 % N][i % 4] += part[i / (4 * N)][i / 4 % N][i % 4];
            }
        }
    }
    const i64 out = batch * args.out_batch + static_cast<i64>(first_row) * args.out_stride + first_column;
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const i32 column = warp_column + 8 * n + 2 * quad;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const i32 row = warp_row + 16 * m + 8 * half + group;
                if (row >= rows || column >= columns) {
                    continue;
                }
                const i64 at = out + row * args.out_stride + column;
                const float x = total[m][n][2 * half], y = total[m][n][2 * half + 1];
                if (args.out_f32) {
                    *reinterpret_cast<float2*>(static_cast<float*>(args.out) + at) = make_float2(x, y);
                } else {
                    *reinterpret_cast<u32*>(static_cast<u16*>(args.out) + at) = pack_bf16_fast(x, y);
                }
            }
        }
    }
}

}  // namespace portable

// Defines a kernel, the number of its blocks per SM, and the dynamic shared memory of its launch.
#define PORTABLE_PRODUCT(name, blocks_of_sm, ...)                                                          \
    extern "C" __device__ const u32 name##_shared = portable::ProductShape<__VA_ARGS__>::SharedBytes;      \
    extern "C" __global__ void __launch_bounds__(portable::ProductShape<__VA_ARGS__>::Threads, blocks_of_sm) \
        name(const __grid_constant__ ProductArgs args) {                                                   \
        portable::multiply_rows<portable::ProductShape<__VA_ARGS__>>(args);                                \
    }
