// Writes the result of a unit: bf16 rows, and the log-sum-exp of each row.
#pragma once

#include "ptx/wgmma_wide.cuh"
#include "sm90/dense/storage.cuh"

namespace sparrow_dense {

constexpr float kLn2 = 0.693147180559945309f;

// The part of a [64, N] accumulator that a lane holds: rows `row` and row + 8, and columns 2*pair and 2*pair + 1 of
// every 8 columns.
struct Corner {
    i32 group, row;
    u32 pair;

    __device__ __forceinline__ explicit Corner(i32 g) : group(g),
        row(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4), pair(threadIdx.x % 4) {}
};

// Transposes 4 x 4 words over four adjacent lanes: lane q sends word k to lane k and receives word q of every lane.
__device__ __forceinline__ void transpose_quad(u32 (&w)[4], u32 q) {
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
        const u32 got = __shfl_xor_sync(ptx::kFullMask, q & 1 ? w[k] : w[k + 1], 1);
        w[k] = q & 1 ? got : w[k];
        w[k + 1] = q & 1 ? w[k + 1] : got;
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {
        const u32 got = __shfl_xor_sync(ptx::kFullMask, q & 2 ? w[k] : w[k + 2], 2);
        w[k] = q & 2 ? got : w[k];
        w[k + 2] = q & 2 ? w[k + 2] : got;
    }
}

// Writes this warpgroup's rows of the unit: o divided by the sums of the rows. Adding +0 changes -0 to +0, because the
// sign of a zero can depend on masked keys.
template <class S>
__device__ __forceinline__ void write_rows(const DenseAttendArgs& args, const Corner& at, i32 row, i32 rows, i32 head,
    const float (&o)[S::Columns / 2],
                                           const float (&inverse)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const i32 r = at.group * kGroupRows + at.row + half * 8;
        u16* dst = args.out + (row + r) * args.out_stride + static_cast<i64>(head) * S::Columns + at.pair * 8;
#pragma unroll
        for (int j = 0; j < S::Columns / 8; j += 4) {
            u32 w[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const int i = (j + k) * 4 + half * 2;
                w[k] = ptx::Bf16::pack(fmaf(o[i], inverse[half], 0.0f), fmaf(o[i + 1], inverse[half], 0.0f));
            }
            transpose_quad(w, at.pair);
            if (r < rows) {
                *reinterpret_cast<uint4*>(dst + j * 8) = make_uint4(w[0], w[1], w[2], w[3]);
            }
        }
    }
}

// Writes the log-sum-exp of a lane's two rows. base and sum are relative to base-2 exponents.
__device__ __forceinline__ void write_lse(const DenseAttendArgs& args, const Corner& at, i32 row, i32 rows, i32 head,
    const float (&base)[2], const float (&sum)[2]) {
    if (args.lse == nullptr || at.pair != 0) {
        return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const i32 r = at.group * kGroupRows + at.row + half * 8;
        if (r < rows) {
            args.lse[(row + r) * args.lse_stride + head] = sum[half] > 0.0f ? logf(sum[half]) + base[half] * kLn2
                : __int_as_float(0x7F800000);
        }
    }
}

// Writes zeros, and lse +inf, for the rows of a unit without keys.
template <class S>
__device__ __forceinline__ void write_zeros(const DenseAttendArgs& args, const Corner& at, i32 row, i32 rows,
    i32 head) {
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
        const i32 r = at.group * kGroupRows + at.row + half * 8;
        u16* dst = args.out + (row + r) * args.out_stride + static_cast<i64>(head) * S::Columns + at.pair * 8;
#pragma unroll 1
        for (int j = 0; j < S::Columns && r < rows; j += 32) {
            *reinterpret_cast<uint4*>(dst + j) = make_uint4(0, 0, 0, 0);
        }
    }
    write_lse(args, at, row, rows, head, {0.0f, 0.0f}, {0.0f, 0.0f});
}

}  // namespace sparrow_dense
