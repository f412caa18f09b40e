// Conversion of e4m3 codes that are the left operand of the matrix unit. Many codes are checked for NaN with one test,
// because kernels that are limited by weight bandwidth have time for few other instructions.
#pragma once

#include "sm80/mma.cuh"

namespace portable {

constexpr u32 kNaNs = 0x80808080u;
#if __CUDA_ARCH__ >= 890
__device__ __forceinline__ void widen_numbers(u32 codes, u32& first, u32& second) {
    asm volatile("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h; }"
                 // asm volatile prevents the compiler from moving the conversion: many conversions at the same time
                 // would need too many registers.
                 : "=r"(first), "=r"(second) : "r"(codes));
}
// No test is needed: the conversion instruction converts NaN to NaN.
__device__ __forceinline__ u32 nans_of(const uint4&) { return 0; }
#else
// Converts codes to pairs of halves as widen_codes does, but no code may be a NaN. Left shifts are written as
// multiplications, which run on another execution unit.
__device__ __forceinline__ u32 widen_pair(u32 codes) {  // codes: an e4m3 code in the low byte of each half
    const u32 up = codes * 128u;
    return up + (up & 0x40004000u);  // the sign moves one bit further than the other bits
}
__device__ __forceinline__ void widen_numbers(u32 codes, u32& first, u32& second) {
    first = widen_pair(__byte_perm(codes, 0, 0x4140));
    second = widen_pair(__byte_perm(codes, 0, 0x4342));
}
// Returns a word in which at least one bit of kNaNs is set if any code is a NaN.
__device__ __forceinline__ u32 nans_of(const uint4& v) {
    return ((v.x & 0x7F7F7F7Fu) + 0x01010101u) | ((v.y & 0x7F7F7F7Fu) + 0x01010101u) |
           ((v.z & 0x7F7F7F7Fu) + 0x01010101u) | ((v.w & 0x7F7F7F7Fu) + 0x01010101u);
}
#endif

// Sets to NaN the rows of the sums [16, 8] whose left operand contains a NaN code. upper and lower are the results of
// nans_of for this lane's part of rows l / 4 and l / 4 + 8.
template <int N>
__device__ __forceinline__ void spoil(u32 upper, u32 lower, float (&sum)[N][4]) {
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2) {
        upper |= __shfl_xor_sync(ptx::kFullMask, upper, lanes);
        lower |= __shfl_xor_sync(ptx::kFullMask, lower, lanes);
    }
    const float nan = __int_as_float(0x7FFFFFFF);
#pragma unroll
    for (int n = 0; n < N; ++n) {
        if ((upper & kNaNs) != 0) {
            sum[n][0] = sum[n][1] = nan;
        }
        if ((lower & kNaNs) != 0) {
            sum[n][2] = sum[n][3] = nan;
        }
    }
}

}  // namespace portable
