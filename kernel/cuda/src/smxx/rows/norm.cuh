// RMSNorm of every row: out = x / sqrt(mean(x^2) + epsilon) * weight.
//
// In, out  bf16 [rows, columns], any number of columns. Squares of bf16 are exact in float32; eight of them are added there, their sums in float64. The
//          quotient is rounded to float32, its product with x and the weight is float32.
// Block    8 warps: one short row each, or one long row together; which of the two depends on the columns alone, and so do a row's bits. Rows aligned
//          to 16 bytes move as 16-byte pieces. Traffic: x is read twice, the second time from cache.
#pragma once
#include "smxx/floats.cuh"
#include "smxx/rows/args.h"

DEVICE f64 warp_total(f64 v) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) v = __dadd_rn(v, __shfl_xor_sync(ptx::kFullMask, v, d));
    return v;
}

DEVICE f32 norm_weight(const RMSNormArgs& a, i32 i) { return a.weight_bf16 ? bf16_low(static_cast<const u16*>(a.weight)[i]) : static_cast<const f32*>(a.weight)[i]; }

DEVICE f32 normalised(const RMSNormArgs& a, f32 x, f32 inverse, i32 i) { return __fmul_rn(__fmul_rn(x, inverse), norm_weight(a, i)); }

// 1 / sqrt(sum / columns + epsilon) without a division, whose general case is a call that would keep registers in local memory: the hardware's
// estimate of an inverse root has 20 bits and more, and each step doubles them.
DEVICE f32 inverse_root(f64 sum, const RMSNormArgs& a) {
    f64 columns = a.columns, each;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(each) : "d"(columns));
#pragma unroll
    for (int i = 0; i < 3; i++) each = __fma_rn(__fma_rn(-columns, each, 1.0), each, each);
    f64 mean = __fma_rn(sum, each, a.epsilon), r;
    asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(mean));
#pragma unroll
    for (int i = 0; i < 3; i++) r = __fma_rn(__dmul_rn(0.5, r), __fma_rn(__dmul_rn(-mean, r), r, 1.0), r);
    return __double2float_rn(r);
}

// The sum of squares of what one thread of `Threads` has of a row, in the order of its columns. A thread's columns are the same 8 in every 8 * Threads
// whether they are read as vectors or one by one.
template <int Threads> DEVICE f64 squares(const RMSNormArgs& a, const u16* x, i32 thread, bool vectors) {
    f64 sum = 0;
    for (i32 i = 8 * thread; i < a.columns; i += 8 * Threads) {
        f32 v[8];
        if (vectors) {
            unpack_8(*reinterpret_cast<const uint4*>(x + i), v);
        } else {
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = i + j < a.columns ? bf16_low(x[i + j]) : 0.0f;
        }
        f32 eight = 0;
#pragma unroll
        for (int j = 0; j < 8; j++) eight = __fmaf_rn(v[j], v[j], eight);
        sum = __dadd_rn(sum, eight);
    }
    return sum;
}

template <int Threads> DEVICE void write_normalised(const RMSNormArgs& a, const u16* x, u16* out, f32 inverse, i32 thread, bool vectors) {
    for (i32 i = 8 * thread; i < a.columns; i += 8 * Threads) {
        if (vectors) {
            f32 v[8];
            unpack_8(*reinterpret_cast<const uint4*>(x + i), v);
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = normalised(a, v[j], inverse, i + j);
            *reinterpret_cast<uint4*>(out + i) = pack_8(v);
        } else {
            for (i32 j = i; j < min(i + 8, a.columns); j++) out[j] = static_cast<u16>(bf16_bits(normalised(a, bf16_low(x[j]), inverse, j)));
        }
    }
}

DEVICE bool norm_vectors(const RMSNormArgs& a) { return a.columns % 8 == 0 && aligned_16(a.x, 2 * a.x_stride) && aligned_16(a.out, 2 * a.out_stride); }

DEVICE void rms_norm_body(const RMSNormArgs& a) {
    begin_after_previous();
    i64 row = warp_row();
    if (row >= a.rows) return;
    const u16* x = a.x + row * a.x_stride;
    bool vectors = norm_vectors(a);
    f64 sum = warp_total(squares<32>(a, x, lane_id(), vectors));
    write_normalised<32>(a, x, a.out + row * a.out_stride, inverse_root(sum, a), lane_id(), vectors);
}

DEVICE void rms_norm_long_body(const RMSNormArgs& a) {
    __shared__ f64 part[kWarpsPerBlock];
    begin_after_previous();
    const u16* x = a.x + blockIdx.x * a.x_stride;
    bool vectors = norm_vectors(a);
    f64 sum = warp_total(squares<kThreads>(a, x, threadIdx.x, vectors));
    if (lane_id() == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int w = 0; w < kWarpsPerBlock; w++) sum = __dadd_rn(sum, part[w]);
    write_normalised<kThreads>(a, x, a.out + blockIdx.x * a.out_stride, inverse_root(sum, a), threadIdx.x, vectors);
}
