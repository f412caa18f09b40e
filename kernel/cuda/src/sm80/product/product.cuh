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
    // Tiles of a warp: of 16 columns of the result, and of 8 rows.
    static constexpr int ColumnTiles = Columns / ColumnWarps / 16, RowTiles = Rows / RowWarps / 8;
    // A stage: weights [Columns, 128 bytes] and input rows [Rows, 128 bytes].
    static constexpr u32 RowsAt = Columns * kBlockBytes, StageBytes = RowsAt + Rows * kBlockBytes;
    // Behind the stages, for e4m3: scales [ScaleSlots, Rows]. They are read when the stage of their block has been
    // filled again.
    static constexpr u32 ScalesAt = Stages * StageBytes, ScaleSlots = Stages < 4 ? 4 : 8;
    static constexpr u32 SharedBytes = ScalesAt + (T::Scaled ? ScaleSlots * Rows * 4 : 0);
    static_assert(Stages < ScaleSlots, "a scale is overwritten before it is read");
    static_assert(SharedBytes <= 101376, "more shared memory than a block of a consumer card can have");
    static_assert(128 % Columns == 0, "a tile has one row of scales");
};

// Returns the row of weight scales that a column uses.
__device__ __forceinline__ i64 scale_row(const ProductArgs& args, i32 batch, i32 column) {
    return static_cast<i64>(batch) * ((args.columns + 127) / 128) + column / 128;
}

// Returns the offset of the scales of a block.
template <class S>
__device__ __forceinline__ u32 scale_slot(i32 block) {
    return S::ScalesAt + static_cast<u32>(block) % S::ScaleSlots * (S::Rows * 4);
}

// Copies of blocks of both operands to the ring. Eight threads copy a row of 128 bytes, 16 bytes each. Rows beyond the
// matrix repeat the last row, and their results are discarded. Only the addresses of a block's first rows, which are
// equal in all threads, change from block to block. The distances to them (32 bits) remain in registers.
template <class S>
struct ProductCopies {
    using T = typename S::Type;
    static constexpr int Lines = S::Threads / 8;  // rows that are copied at a time
    static constexpr int Inputs = S::Rows / Lines, Weights = S::Columns / Lines;
    static_assert(S::Rows % Lines == 0 && S::Columns % Lines == 0 && Lines % 8 == 0, "rows are not divided evenly");
    const u8 *inputs, *weights, *scales;  // of the tile's first row, in the next block
    u32 of_inputs[Inputs], of_weights[Weights];
    u32 to;          // this thread's place in a stage
    i32 left;        // bytes of k from this thread's piece of the next block to the end
    i32 scale_left;  // bytes of scales from this thread's four scales to the end; at most 0 if it copies none

    __device__ __forceinline__ ProductCopies(const ProductArgs& args, i32 first_row, i32 rows, i32 first_column,
                                             i32 columns, i32 batch) {
        const PlainMap &input = plain(args.input_map), &weight = plain(args.weight_map);
        const i32 line = threadIdx.x / 8, own_byte = threadIdx.x % 8 * 16;
        inputs = input.base + batch * input.strides[1] + first_row * input.strides[0];
        weights = weight.base + batch * weight.strides[1] + first_column * weight.strides[0];
#pragma unroll
        for (int i = 0; i < Inputs; ++i) {
            of_inputs[i] = min(line + i * Lines, rows - 1) * static_cast<u32>(input.strides[0]) + own_byte;
        }
#pragma unroll
        for (int i = 0; i < Weights; ++i) {
            of_weights[i] = min(line + i * Lines, columns - 1) * static_cast<u32>(weight.strides[0]) + own_byte;
        }
        to = swizzled(line, threadIdx.x % 8);
        left = static_cast<i32>(input.dims[0]) * T::Bytes - own_byte;
        if constexpr (T::Scaled) {
            const PlainMap& map = plain(args.scale_map);
            scales = map.base + static_cast<i64>(batch) * args.blocks * map.strides[0] + first_row * 4;
            scale_left = threadIdx.x * 4 < S::Rows ? (rows - static_cast<i32>(threadIdx.x) * 4) * 4 : 0;
        }
    }
    // Issues the copies of the next block, which has the given number, to a stage.
    __device__ __forceinline__ void fetch(const ProductArgs& args, u32 ring, u32 stage, i32 block) {
        const bool inside = left > 0;
#pragma unroll
        for (int i = 0; i < Weights; ++i) {
            copy_16(ring + stage + to + i * Lines * kBlockBytes, weights + of_weights[i], inside);
        }
#pragma unroll
        for (int i = 0; i < Inputs; ++i) {
            copy_16(ring + stage + S::RowsAt + to + i * Lines * kBlockBytes, inputs + of_inputs[i], inside);
        }
        if constexpr (T::Scaled) {
            if (scale_left > 0) {
                const u32 at = ring + scale_slot<S>(block) + threadIdx.x * 16;
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at),
                             "l"(scales + threadIdx.x * 16), "r"(min(scale_left, 16))
                             : "memory");
            }
            scales += plain(args.scale_map).strides[0];
        }
        inputs += kBlockBytes;
        weights += kBlockBytes;
        left -= static_cast<i32>(kBlockBytes);
    }
};

// The operands of a warp for half of a block: the pieces 2 q + half of each row, where q is l % 4.
template <class S>
struct ProductPieces {
    using T = typename S::Type;
    static constexpr int M = S::ColumnTiles, N = S::RowTiles;
    uint4 columns[M][2];  // weights of columns l / 4 and l / 4 + 8 of each tile
    uint4 rows[N];        // input rows l / 4 of each tile

    // columns_at and rows_at are the addresses of this lane's piece of its first row of each operand.
    __device__ __forceinline__ void load(u32 columns_at, u32 rows_at) {
#pragma unroll
        for (int m = 0; m < M; ++m) {
            columns[m][0] = load_shared(columns_at + 16 * m * kBlockBytes);
            columns[m][1] = load_shared(columns_at + (16 * m + 8) * kBlockBytes);
        }
#pragma unroll
        for (int n = 0; n < N; ++n) {
            rows[n] = load_shared(rows_at + 8 * n * kBlockBytes);
        }
    }
    __device__ __forceinline__ void multiply(float (&part)[M][N][4]) const {
#pragma unroll
        for (int step = 0; step < T::Steps; ++step) {
            u32 left[M][4];
#pragma unroll
            for (int m = 0; m < M; ++m) {
                T::words(columns[m][0], step, left[m][0], left[m][2]);
                T::words(columns[m][1], step, left[m][1], left[m][3]);
            }
#pragma unroll
            for (int n = 0; n < N; ++n) {
                u32 right[2];
                T::words(rows[n], step, right[0], right[1]);
#pragma unroll
                for (int m = 0; m < M; ++m) {
                    T::multiply(part[m][n], left[m], right);
                }
            }
        }
    }
};

// Exchanges pairs of 16-bit elements: lane l has those of row l / 4 of a matrix of 8 x 8, at columns 2 (l % 4) and
// 2 (l % 4) + 1, and receives those of the transposed matrix.
__device__ __forceinline__ u32 turn(u32 pair) {
    u32 turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
    return turned;
}

template <class S>
__device__ __forceinline__ void multiply_rows(const ProductArgs& args) {
    using T = typename S::Type;
    constexpr int M = S::ColumnTiles, N = S::RowTiles;
    extern __shared__ __align__(128) u8 dynamic_shared[];
    const u32 ring = shared_address(dynamic_shared);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
    const u32 warp_row = warp / S::ColumnsOfWarps * (8 * N), warp_column = warp % S::ColumnsOfWarps * (16 * M);
    const i32 first_row = blockIdx.x * S::Rows, first_column = blockIdx.y * S::Columns, batch = blockIdx.z;
    const i32 rows = min(args.rows - first_row, S::Rows), columns = min(args.columns - first_column, S::Columns);
    ProductCopies<S> copies(args, first_row, rows, first_column, columns, batch);
#pragma unroll
    for (u32 s = 0; s < S::Stages; ++s) {
        if (static_cast<i32>(s) < args.blocks) {
            copies.fetch(args, ring, s * S::StageBytes, static_cast<i32>(s));
        }
        copies_commit();
    }
    // This lane's pieces of both halves of a block in the first stage.
    const u32 columns_at = ring + warp_column * kBlockBytes, rows_at = ring + S::RowsAt + warp_row * kBlockBytes;
    const u32 first_half = swizzled(group, 2 * quad), second_half = swizzled(group, 2 * quad + 1);
    const float* const weight_scales =
        T::Scaled ? args.weight_scales + scale_row(args, batch, first_column) * args.blocks : nullptr;
    float total[M][N][4] = {};
    ProductPieces<S> first, second;
    copies_wait<S::Stages - 1>();
    __syncthreads();  // the first block has arrived
    first.load(columns_at + first_half, rows_at + first_half);
    u32 stage = 0;
    for (i32 block = 0; block < args.blocks; ++block) {
        float part[M][N][4] = {};
        second.load(columns_at + stage + second_half, rows_at + stage + second_half);
        const float own = T::Scaled ? __ldg(weight_scales + block) : 0.0f;
        first.multiply(part);
        copies_wait<S::Stages - 2>();
        __syncthreads();  // the next block has arrived, and all threads have read this block
        if (block + S::Stages < args.blocks) {
            copies.fetch(args, ring, stage, block + S::Stages);
        }
        copies_commit();
        stage = stage == (S::Stages - 1) * S::StageBytes ? 0 : stage + S::StageBytes;
        // After the last block these pieces are not used.
        first.load(columns_at + stage + first_half, rows_at + stage + first_half);
        second.multiply(part);
#pragma unroll
        for (int n = 0; n < N; ++n) {
            if constexpr (T::Scaled) {
                float2 up;
                asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                             : "=f"(up.x), "=f"(up.y)
                             : "r"(ring + scale_slot<S>(block) + (warp_row + 8 * n + 2 * quad) * 4)
                             : "memory");
                const float even = __fmul_rn(__fmul_rn(own, up.x), kCodeUp),
                            odd = __fmul_rn(__fmul_rn(own, up.y), kCodeUp);
#pragma unroll
                for (int m = 0; m < M; ++m) {
                    total[m][n][0] = fmaf(part[m][n][0], even, total[m][n][0]);
                    total[m][n][1] = fmaf(part[m][n][1], odd, total[m][n][1]);
                    total[m][n][2] = fmaf(part[m][n][2], even, total[m][n][2]);
                    total[m][n][3] = fmaf(part[m][n][3], odd, total[m][n][3]);
                }
            } else {
#pragma unroll
                for (int m = 0; m < M; ++m) {
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        total[m][n][i] += part[m][n][i];
                    }
                }
            }
        }
    }
    // This lane has columns l / 4 (elements 0, 1) and l / 4 + 8 (2, 3) of rows 2 (l % 4) and 2 (l % 4) + 1. It stores
    // columns 2 (l % 4) and 2 (l % 4) + 1 of row l / 4.
    const i64 out = batch * args.out_batch + static_cast<i64>(first_row) * args.out_stride + first_column;
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const i32 row = warp_row + 8 * n + group;
#pragma unroll
        for (int i = 0; i < 2 * M; ++i) {
            const i32 column = warp_column + 8 * i + 2 * quad;
            const i64 at = out + row * args.out_stride + column;
            const bool there = row < rows && column < columns;
            const float x = total[i / 2][n][2 * (i % 2)], y = total[i / 2][n][2 * (i % 2) + 1];
            if (args.out_f32) {
                const u32 low = turn(__byte_perm(__float_as_uint(x), __float_as_uint(y), 0x5410)),
                          high = turn(__byte_perm(__float_as_uint(x), __float_as_uint(y), 0x7632));
                if (there) {
                    *reinterpret_cast<uint2*>(static_cast<float*>(args.out) + at) =
                        make_uint2(__byte_perm(low, high, 0x5410), __byte_perm(low, high, 0x7632));
                }
            } else {
                const u32 pair = turn(pack_bf16_fast(x, y));
                if (there) {
                    *reinterpret_cast<u32*>(static_cast<u16*>(args.out) + at) = pair;
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
