// RMSNorm of every row: out = x / sqrt(mean(x^2) + epsilon) * weight.
//
// In, out: bf16 [rows, columns], any number of columns. Squares of bf16 are exact in float32. Eight of them are added
//          in float32, and these sums are added in float64. The quotient is rounded to float32; its products with x
//          and the weight are float32.
// Block:   8 warps, with one short row per warp or one long row per block. The choice depends only on the number of
//          columns, so the bits of a row do not depend on other rows. Rows aligned to 16 bytes are accessed 16 bytes at
//          a time.
// Bytes:   x is read once if it fits the registers of a block (8192 columns); otherwise it is read twice, the second
//          time from cache.
// H200:    7168 columns: 1 row 2.4 us, 64 rows 4.0, 4096 rows 31.8 (3.7 TB/s, 86 % of the copy bandwidth).
#pragma once
#include "smxx/floats.cuh"
#include "smxx/rows/args.h"

DEVICE f64 warp_total(f64 v) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) v = __dadd_rn(v, __shfl_xor_sync(ptx::kFullMask, v, d));
    return v;
}

DEVICE f32 norm_weight(const RMSNormArgs& a, i32 i) {
    return a.weight_bf16 ? bf16_low(static_cast<const u16*>(a.weight)[i]) : static_cast<const f32*>(a.weight)[i];
}

DEVICE f32 normalised(const RMSNormArgs& a, f32 x, f32 inverse, i32 i) {
    return __fmul_rn(__fmul_rn(x, inverse), norm_weight(a, i));
}

// Returns 1 / sqrt(sum / columns + epsilon) without a division, because the general division is a function call that
// would spill registers to local memory. The hardware's estimate of an inverse root has at least 20 correct bits, and
// each iteration doubles them.
template <class Args> DEVICE f32 inverse_root(f64 sum, const Args& a) {
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

DEVICE f32 eight_squares(uint4 piece) {
    f32 v[8], sum = 0;
    unpack_8(piece, v);
#pragma unroll
    for (int j = 0; j < 8; j++) sum = __fmaf_rn(v[j], v[j], sum);
    return sum;
}

DEVICE uint4 normalised_8(const RMSNormArgs& a, uint4 piece, f32 inverse, i32 i) {
    f32 v[8], w[8];
    unpack_8(piece, v);
    if (a.weight_bf16 == 0 && aligned_16(a.weight, 0)) {
        float4 low = *reinterpret_cast<const float4*>(static_cast<const f32*>(a.weight) + i),
               high = *reinterpret_cast<const float4*>(static_cast<const f32*>(a.weight) + i + 4);
        w[0] = low.x, w[1] = low.y, w[2] = low.z, w[3] = low.w, w[4] = high.x, w[5] = high.y, w[6] = high.z,
        w[7] = high.w;
    } else {
#pragma unroll
        for (int j = 0; j < 8; j++) w[j] = norm_weight(a, i + j);
    }
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = __fmul_rn(__fmul_rn(v[j], inverse), w[j]);
    return pack_8(v);
}

// Returns the sum of squares of one thread's part of a row, in the order of its columns. A thread has 8 adjacent
// columns of every 8 * Threads columns, whether they are read as vectors or one by one.
template <int Threads>
DEVICE f64 squares(const RMSNormArgs& a, const u16* x, i32 thread, bool vectors) {
    f64 sum = 0;
    for (i32 i = 8 * thread; i < a.columns; i += 8 * Threads) {
        f32 eight = 0;
        if (vectors) {
            eight = eight_squares(*reinterpret_cast<const uint4*>(x + i));
        } else {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                f32 v = i + j < a.columns ? bf16_low(x[i + j]) : 0.0f;
                eight = __fmaf_rn(v, v, eight);
            }
        }
        sum = __dadd_rn(sum, eight);
    }
    return sum;
}

template <int Threads>
DEVICE void write_normalised(const RMSNormArgs& a, const u16* x, u16* out, f32 inverse, i32 thread, bool vectors) {
    for (i32 i = 8 * thread; i < a.columns; i += 8 * Threads) {
        if (vectors) {
            *reinterpret_cast<uint4*>(out + i) = normalised_8(a, *reinterpret_cast<const uint4*>(x + i), inverse, i);
        } else {
            for (i32 j = i; j < min(i + 8, a.columns); j++)
                out[j] = static_cast<u16>(bf16_bits(normalised(a, bf16_low(x[j]), inverse, j)));
        }
    }
}

DEVICE bool norm_vectors(const RMSNormArgs& a) {
    return a.columns % 8 == 0 && aligned_16(a.x, 2 * a.x_stride) && aligned_16(a.out, 2 * a.out_stride);
}

DEVICE void rms_norm_body(const RMSNormArgs& a) {
    begin_after_previous();
    i64 row = warp_row();
    if (row >= a.rows) return;
    const u16* x = a.x + row * a.x_stride;
    bool vectors = norm_vectors(a);
    f64 sum = warp_total(squares<32>(a, x, lane_id(), vectors));
    write_normalised<32>(a, x, a.out + row * a.out_stride, inverse_root(sum, a), lane_id(), vectors);
}

constexpr i32 kHeld = 4; // 16-byte pieces of a row that a thread keeps between the two passes

// Returns the sum over the threads of the block, with equal bits in every thread.
DEVICE f64 block_total(f64 sum) {
    __shared__ f64 part[kWarpsPerBlock];
    sum = warp_total(sum);
    if (lane_id() == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int w = 0; w < kWarpsPerBlock; w++) sum = __dadd_rn(sum, part[w]);
    return sum;
}

DEVICE void rms_norm_long_body(const RMSNormArgs& a) {
    begin_after_previous();
    const u16* x = a.x + blockIdx.x * a.x_stride;
    u16* out = a.out + blockIdx.x * a.out_stride;
    bool vectors = norm_vectors(a);
    if (!vectors || a.columns > 8 * kThreads * kHeld) {
        f64 sum = block_total(squares<kThreads>(a, x, threadIdx.x, vectors));
        write_normalised<kThreads>(a, x, out, inverse_root(sum, a), threadIdx.x, vectors);
        return;
    }
    uint4 held[kHeld];
#pragma unroll
    for (int h = 0; h < kHeld; h++) {
        i32 i = 8 * (threadIdx.x + kThreads * h);
        held[h] = i < a.columns ? *reinterpret_cast<const uint4*>(x + i) : make_uint4(0, 0, 0, 0);
    }
    f64 sum = 0; // added in the order of squares()
#pragma unroll
    for (int h = 0; h < kHeld; h++) sum = __dadd_rn(sum, eight_squares(held[h]));
    f32 inverse = inverse_root(block_total(sum), a);
#pragma unroll
    for (int h = 0; h < kHeld; h++) {
        i32 i = 8 * (threadIdx.x + kThreads * h);
        if (i < a.columns) *reinterpret_cast<uint4*>(out + i) = normalised_8(a, held[h], inverse, i);
    }
}
