// N-gram tables (v41 spec, 3): gathers rows from host memory, and adds gated values to the residual streams.
//
// Table:    a warp reads one row of the table over the bus and writes it as bf16.
// Engram:   a block has a row. For every stream it computes the product with the stream's key and the squares of both,
//           in one pass, then the gate, then the sum. Eight products are added in float32, their sums in float64.
// Collapse: the sum of the streams with given weights; a block has 2048 columns of a row.
#pragma once
#include "smxx/rows/norm.cuh"
#include "smxx/v41/args.h"

DEVICE void read_table_body(const ReadTableArgs& a) {
    begin_after_previous();
    const i64 item = warp_row(), row = item / a.columns;
    if (row >= a.rows) return;
    const i32 column = static_cast<i32>(item - row * a.columns);
    const i64 id = a.ids[row * a.id_stride + column];
    const bool there = id >= 0 && id < a.table_rows;
    if (!there && lane_id() == 0) raise_fault(a.faults, kFaultSlot);
    u16* out = a.out + row * a.out_stride + static_cast<i64>(column) * a.dim;
    const u8* from = a.values + id * a.dim * a.type;
    for (i32 c = 8 * lane_id(); c < a.dim; c += 8 * 32) {
        f32 v[8] = {};
        if (there && a.type == 1) {
            const uint2 codes = *reinterpret_cast<const uint2*>(from + c);
            const u32 e = a.scales[id * (a.dim / 32) + c / 32];
            const f32 scale = __uint_as_float(e == 0 ? 0x00400000u : e == 255 ? 0x7FC00000u : e << 23);
            unpack_e4m3(codes.x, v);
            unpack_e4m3(codes.y, v + 4);
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] = __fmul_rn(v[i], scale);
        } else if (there && a.type == 2) {
            const u16* at = reinterpret_cast<const u16*>(from) + c;
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] = bf16_low(at[i]);
        } else if (there) {
            const f32* at = reinterpret_cast<const f32*>(from) + c;
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] = at[i];
        }
        *reinterpret_cast<uint4*>(out + c) = pack_8(v);
    }
}

constexpr i32 kEngramStreams = 4;

DEVICE void engram_body(const EngramArgs& a) {
    __shared__ f64 sums[kWarpsPerBlock][kEngramStreams][3];
    begin_after_previous();
    const i64 row = blockIdx.x;
    u16* x = a.x + row * a.x_stride;
    const u16* kv = a.kv + row * a.kv_stride;
    f64 total[kEngramStreams][3] = {};
    for (i32 c = 8 * threadIdx.x; c < a.hidden; c += 8 * kThreads) {
#pragma unroll
        for (int i = 0; i < kEngramStreams; i++) {
            if (i >= a.streams) break;
            f32 s[8], k[8];
            const i64 at = static_cast<i64>(i) * a.hidden + c;
            unpack_8(*reinterpret_cast<const uint4*>(x + at), s);
            unpack_8(*reinterpret_cast<const uint4*>(kv + at), k);
            const f32* w = a.weight + i * a.weight_stride + c;
            f32 dot = 0, xx = 0, kk = 0;
#pragma unroll
            for (int j = 0; j < 8; j++) {
                dot = __fmaf_rn(s[j] * w[j], k[j], dot);
                xx = __fmaf_rn(s[j], s[j], xx);
                kk = __fmaf_rn(k[j], k[j], kk);
            }
            total[i][0] += dot;
            total[i][1] += xx;
            total[i][2] += kk;
        }
    }
#pragma unroll
    for (int i = 0; i < kEngramStreams; i++) {
#pragma unroll
        for (int k = 0; k < 3; k++) {
            const f64 sum = warp_total(total[i][k]);
            if (lane_id() == 0) sums[threadIdx.x / 32][i][k] = sum;
        }
    }
    __syncthreads();
    __shared__ f32 gates[kEngramStreams];
    if (threadIdx.x < kEngramStreams) {
        f64 sum[3] = {};
        for (int w = 0; w < kWarpsPerBlock; w++) {
            for (int k = 0; k < 3; k++) sum[k] += sums[w][threadIdx.x][k];
        }
        const f64 n = a.hidden;
        const f64 dot = sum[0] * rsqrt(sum[1] / n + a.epsilon) * rsqrt(sum[2] / n + a.epsilon) * rsqrt(n);
        const f32 root = copysignf(sqrtf(fmaxf(fabsf(static_cast<f32>(dot)), 1e-6f)), static_cast<f32>(dot));
        gates[threadIdx.x] = 1.0f / (1.0f + expf(-root));
    }
    __syncthreads();
    for (i32 c = 8 * threadIdx.x; c < a.hidden; c += 8 * kThreads) {
        f32 value[8];
        unpack_8(*reinterpret_cast<const uint4*>(kv + static_cast<i64>(a.streams) * a.hidden + c), value);
#pragma unroll
        for (int i = 0; i < kEngramStreams; i++) {
            if (i >= a.streams) break;
            uint4* at = reinterpret_cast<uint4*>(x + static_cast<i64>(i) * a.hidden + c);
            f32 s[8];
            unpack_8(*at, s);
#pragma unroll
            for (int j = 0; j < 8; j++) s[j] = __fmaf_rn(gates[i], value[j], s[j]);
            *at = pack_8(s);
        }
    }
}

DEVICE void collapse_body(const CollapseArgs& a) {
    begin_after_previous();
    const i64 row = blockIdx.x;
    for (i32 c = blockIdx.y * 8 * kThreads + threadIdx.x; c < min(a.hidden, (blockIdx.y + 1) * 8 * kThreads);
         c += kThreads) {
        f32 sum = 0;
        for (i32 i = 0; i < a.streams; i++) {
            sum = __fmaf_rn(a.weights[row * a.weight_stride + i],
                            bf16_low(a.x[row * a.x_stride + static_cast<i64>(i) * a.hidden + c]), sum);
        }
        a.out[row * a.out_stride + c] = static_cast<u16>(bf16_bits(sum));
    }
}
