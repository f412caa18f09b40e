// Joins the segments of sparse attention: out = sum over segments of 2^(m_s - M) * o_s / sum over segments of 2^(m_s - M) * l_s.
//
// In:    partial f32 [rows, segments, heads, 512], stats f32 [rows, segments, heads, 4] of the segments that have keys.
// Out:   bf16 [rows, heads * 512], lse, max.
// Block: 8 warps, a warp for each row and head; segments are added in their order, whatever else is in the launch.
// Bytes: 2 KB per segment and head read, 1 KB written.
#pragma once

#include "sm90/sparse/math.cuh"

namespace sparrow_sparse {

constexpr int kCombineThreads = 256;
constexpr int kCombineAtOnce = 4;  // segments whose loads are in flight together

__device__ __forceinline__ float4 load_part(const float* p) {
    float4 v;
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
    return v;
}

__device__ __forceinline__ void combine(const SparseAttendArgs& args) {
    ptx::wait_for_previous_kernel();
    ptx::release_next_kernel();
    const i64 task = static_cast<i64>(blockIdx.x) * (kCombineThreads / 32) + threadIdx.x / 32;
    if (task >= static_cast<i64>(args.rows) * args.heads) {
        return;
    }
    const i32 row = static_cast<i32>(task / args.heads), head = static_cast<i32>(task % args.heads), lane = threadIdx.x % 32;
    const i32 keys_first = clipped_length(args.streams[0], row), keys_second = clipped_length(args.streams[1], row);
    const i32 blocks = (keys_first + kKeys - 1) / kKeys + (keys_second + kKeys - 1) / kKeys;
    const i32 live = min((blocks + args.segment_blocks - 1) / args.segment_blocks, args.segments);
    const i64 first = static_cast<i64>(row) * args.segments * args.heads + head;  // in heads
    float largest = kLowest, highest = kLowest;  // of the numbers exponents are relative to, of the scores
    for (i32 s = 0; s < live; ++s) {
        largest = fmaxf(largest, args.stats[(first + static_cast<i64>(s) * args.heads) * 4]);
        highest = fmaxf(highest, args.stats[(first + static_cast<i64>(s) * args.heads) * 4 + 2]);
    }
    float sum = 0.0f;
    float4 o[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        o[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    for (i32 s0 = 0; s0 < live; s0 += kCombineAtOnce) {
        float4 part[kCombineAtOnce][4];
        float weight[kCombineAtOnce];
#pragma unroll
        for (int i = 0; i < kCombineAtOnce; ++i) {
            if (s0 + i < live) {
                const i64 at = first + static_cast<i64>(s0 + i) * args.heads;
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    part[i][j] = load_part(args.partial + at * kValues + j * 128 + lane * 4);
                }
                weight[i] = exp2_fast(args.stats[at * 4] - largest);
                sum = fmaf(args.stats[at * 4 + 1], weight[i], sum);
            }
        }
#pragma unroll
        for (int i = 0; i < kCombineAtOnce; ++i) {
            if (s0 + i < live) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    o[j].x = fmaf(part[i][j].x, weight[i], o[j].x);
                    o[j].y = fmaf(part[i][j].y, weight[i], o[j].y);
                    o[j].z = fmaf(part[i][j].z, weight[i], o[j].z);
                    o[j].w = fmaf(part[i][j].w, weight[i], o[j].w);
                }
            }
        }
    }
    const float f = final_factor(args, head, largest, sum);
    u16* out = args.out + row * args.out_stride + static_cast<i64>(head) * kValues;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        *reinterpret_cast<uint2*>(out + j * 128 + lane * 4) = make_uint2(pack(o[j].x * f, o[j].y * f), pack(o[j].z * f, o[j].w * f));
    }
    if (lane == 0) {
        write_stats(args, row, head, largest, highest, sum);
    }
}

}  // namespace sparrow_sparse
