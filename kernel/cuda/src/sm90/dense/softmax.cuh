// Softmax in registers: masks, the running softmax of a lane's two rows, and the rescaling of the accumulator.
//
// In a [64, N] accumulator, s[i] of a lane belongs to row (i / 2) % 2 of its two rows and to column 8 * (i / 4) + 2 *
// pair + i % 2.
#pragma once

#include "sm90/dense/output.cuh"

namespace sparrow_dense {

// Exponents are relative to a base, which is raised to the row's largest score only when the score exceeds the base by
// more than kSlack, in base 2. The output is therefore rescaled in few tiles, and weights are at most 2^8. The decision
// for a row depends only on the row.
constexpr float kSlack = 8.0f;

// The base of a row before its first key. It is finite, so that differences of bases are not NaN.
constexpr float kLowest = -1e30f;

__device__ __forceinline__ float exp2_fast(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

// Sets the scores of keys that are masked for the lane's rows to -inf.
template <int N>
__device__ __forceinline__ void mask_scores(float (&s)[N], i32 seen0, i32 seen1, u32 pair) {
    const float never = __int_as_float(0xFF800000);
    seen0 -= 2 * static_cast<i32>(pair);
    seen1 -= 2 * static_cast<i32>(pair);
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        const int column = i * 2;
        s[i] = column < seen0 ? s[i] : never;
        s[i + 1] = column + 1 < seen0 ? s[i + 1] : never;
        s[i + 2] = column < seen1 ? s[i + 2] : never;
        s[i + 3] = column + 1 < seen1 ? s[i + 3] : never;
    }
}

// Packs the weights as bf16 A operands, one per 16 keys.
template <int Steps>
__device__ __forceinline__ void pack_weights(u32 (&p)[Steps][4], const float (&s)[Steps * 8]) {
#pragma unroll
    for (int i = 0; i < Steps * 4; ++i) {
        p[i / 4][i % 4] = ptx::Bf16::pack(s[2 * i], s[2 * i + 1]);
    }
}

// The running softmax of a lane's two rows.
struct Softmax {
    float base[2], sum[2];  // per row: base of the exponents (base 2), and sum of this lane's weights
    float factor[2];        // factor by which the last tile rescales the output and the sum
    bool moved;             // at least one factor of the warp is not one

    __device__ __forceinline__ void reset() {
        base[0] = base[1] = kLowest;
        sum[0] = sum[1] = 0.0f;
    }

    // Converts the scores of a tile to weights in place.
    template <int N>
    __device__ __forceinline__ void weigh(float (&s)[N], float scale) {
        float high0 = fmaxf(s[0], s[1]), high1 = fmaxf(s[2], s[3]);
#pragma unroll
        for (int i = 4; i < N; i += 4) {
            high0 = fmaxf(high0, fmaxf(s[i], s[i + 1]));
            high1 = fmaxf(high1, fmaxf(s[i + 2], s[i + 3]));
        }
        high0 *= scale;
        high1 *= scale;
        factor[0] = factor[1] = 1.0f;
        moved = false;
        // At least one row of the warp has exceeded its base.
        if (__any_sync(ptx::kFullMask, high0 > base[0] + kSlack || high1 > base[1] + kSlack)) {
            moved = true;
#pragma unroll
            for (int d = 1; d < 4; d *= 2) {
                high0 = fmaxf(high0, __shfl_xor_sync(ptx::kFullMask, high0, d));
                high1 = fmaxf(high1, __shfl_xor_sync(ptx::kFullMask, high1, d));
            }
            if (high0 > base[0] + kSlack) {
                factor[0] = exp2_fast(base[0] - high0);
                base[0] = high0;
            }
            if (high1 > base[1] + kSlack) {
                factor[1] = exp2_fast(base[1] - high1);
                base[1] = high1;
            }
        }
        float sum0 = 0.0f, sum1 = 0.0f;
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            s[i] = exp2_fast(fmaf(s[i], scale, -base[0]));
            s[i + 1] = exp2_fast(fmaf(s[i + 1], scale, -base[0]));
            s[i + 2] = exp2_fast(fmaf(s[i + 2], scale, -base[1]));
            s[i + 3] = exp2_fast(fmaf(s[i + 3], scale, -base[1]));
            sum0 += s[i] + s[i + 1];
            sum1 += s[i + 2] + s[i + 3];
        }
        sum[0] = fmaf(sum[0], factor[0], sum0);
        sum[1] = fmaf(sum[1], factor[1], sum1);
    }

    // Multiplies the accumulator of the previous tiles by the factors of the current tile. A warp whose factors are all
    // one skips the multiplication, which does not change the bits.
    template <int N>
    __device__ __forceinline__ void rescale(float (&o)[N]) const {
        if (!moved) {
            return;
        }
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            o[i] *= factor[0];
            o[i + 1] *= factor[0];
            o[i + 2] *= factor[1];
            o[i + 3] *= factor[1];
        }
    }

    // Replaces sum by the sums over all lanes of a row, and computes their inverses, which are zero for a row without
    // keys.
    __device__ __forceinline__ void finish(float (&inverse)[2]) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            sum[half] += __shfl_xor_sync(ptx::kFullMask, sum[half], 1);
            sum[half] += __shfl_xor_sync(ptx::kFullMask, sum[half], 2);
            inverse[half] = sum[half] > 0.0f ? 1.0f / sum[half] : 0.0f;
        }
    }
};

}  // namespace sparrow_dense
