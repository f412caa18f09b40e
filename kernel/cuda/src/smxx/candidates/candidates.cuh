// Finds the n largest logits of every row with their columns, and the log-sum-exp of the row. The lower column wins a
// tie. NaN is ordered as minus infinity, and makes the log-sum-exp NaN.
//
// In:    logits f32 or bf16 [rows, columns], columns up to 262144.
// Out:   ids i32 and values f32 [rows, best], log_sum f32 [rows].
// Parts: A block of 256 threads has 8192 columns of a row, 32 per thread in registers. Every warp finds the
//        ceil(n / 8)-th largest of the maxima of its lanes. At least n logits are not below the smallest of these
//        eight values, so it is a lower bound. All logits at or above the bound are listed, and each listed key counts
//        the keys above it. A key is the logit as an ordered integer, then the column. All keys are different, so the
//        result does not depend on the order of the list. If ties make the list too long, the bound is found again
//        among whole keys; then at most 32 * n keys are listed.
// Merge: One block per row: one warp takes the largest of the first remaining keys of all parts, n times.
// Bits:  Parts are cut by column, so sums have the same order in any batch.
// Bytes: The logits are read once.
// H200:  129280 columns of f32, best 1 / 20: 1 row 6.9 / 10.9 us, 64 rows 21 / 26, 512 rows 107 / 119 (2.5 / 2.2
//        TB/s, 58 / 52 % of the copy bandwidth).
#pragma once
#include "smxx/candidates/args.h"
#include "smxx/floats.cuh"
#include "smxx/key.cuh"

constexpr i32 kPartColumns = 8192;
constexpr i32 kMostBest = 64;
constexpr i32 kMostParts = 32;
constexpr i32 kPerThread = kPartColumns / kThreads;

DEVICE f32 candidate_value(u64 key) {
    u32 b = static_cast<u32>(key >> 32);
    return __uint_as_float(b & 0x80000000u ? b & 0x7FFFFFFFu : ~b);
}

// Returns the column of value i of a thread, relative to its part.
DEVICE i32 candidate_column(i32 i, i32 thread) { return kThreads * (i & ~3) + 4 * thread + (i & 3); }

DEVICE void candidate_parts_body(const CandidatesArgs& a) {
    __shared__ u64 top[kThreads];
    __shared__ u64 list[kMostBest * kPerThread];
    __shared__ f32 reduced[2][kWarpsPerBlock];
    __shared__ u32 bounds[kWarpsPerBlock];
    __shared__ u64 whole_bound;
    __shared__ u32 listed;
    begin_after_previous();
    i64 row = blockIdx.y;
    i32 part = blockIdx.x, from = part * kPartColumns, count = min(a.columns - from, kPartColumns),
        thread = threadIdx.x;
    f32 lowest = __int_as_float(0xFF800000), v[kPerThread];
    const u8* logits = static_cast<const u8*>(a.logits) + row * a.stride * element_bytes(a.type);
    bool vectors = (reinterpret_cast<u64>(logits) & 15) == 0;
#pragma unroll
    for (int i = 0; i < kPerThread; i += 4) {
        i32 c = candidate_column(i, thread);
        if (vectors && c + 4 <= count) {
            if (a.type == kF32) {
                float4 w = *reinterpret_cast<const float4*>(logits + 4ll * (from + c));
                v[i] = w.x, v[i + 1] = w.y, v[i + 2] = w.z, v[i + 3] = w.w;
            } else {
                uint2 w = *reinterpret_cast<const uint2*>(logits + 2ll * (from + c));
                v[i] = bf16_low(w.x), v[i + 1] = bf16_high(w.x), v[i + 2] = bf16_low(w.y), v[i + 3] = bf16_high(w.y);
            }
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++) v[i + j] = c + j < count ? read_float(logits, from + c + j, a.type) : lowest;
        }
    }
    if (thread == 0) listed = 0;
    f32 high = lowest;
#pragma unroll
    for (int i = 0; i < kPerThread; i++) high = fmaxf(high, v[i]); // fmaxf ignores NaN
    // The bound of this warp: removes the largest of the lanes' maxima until the ceil(n / 8)-th largest is left.
    u32 mine = candidate_order(high), bound = 0;
    for (i32 n = 0; n < a.best; n += kWarpsPerBlock) {
        bound = ptx::warp_max(mine);
        if (__ffs(__ballot_sync(ptx::kFullMask, mine == bound)) - 1 == lane_id()) mine = 0;
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) high = fmaxf(high, __shfl_xor_sync(ptx::kFullMask, high, d));
    if (lane_id() == 0) {
        reduced[0][thread / 32] = high;
        bounds[thread / 32] = bound;
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kWarpsPerBlock; w++) {
        high = fmaxf(high, reduced[0][w]);
        bound = min(bound, bounds[w]);
    }
    f32 sum = 0;
    u32 chosen = 0;
#pragma unroll
    for (int i = 0; i < kPerThread; i++) {
        chosen |= static_cast<u32>(candidate_order(v[i]) >= bound) << i;
        // The largest logit contributes 1 even if it is infinite. A NaN stays a NaN.
        if (candidate_column(i, thread) < count)
            sum = __fadd_rn(sum, v[i] == high ? 1.0f : __expf(__fsub_rn(v[i], high)));
    }
    // The few listed logits are read from memory again, because registers cannot be indexed at run time.
    for (; chosen != 0; chosen &= chosen - 1) {
        i32 c = candidate_column(__ffs(chosen) - 1, thread);
        if (c < count) {
            u32 at = atomicAdd(&listed, 1u);
            if (at < kMostBest * kPerThread) list[at] = candidate_key(read_float(logits, from + c, a.type), from + c);
        }
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(ptx::kFullMask, sum, d));
    if (lane_id() == 0) reduced[1][thread / 32] = sum;
    __syncthreads();
    if (listed > kMostBest * kPerThread) { // ties: finds the bound among whole keys, which are all different
        u64 best = 0;
#pragma unroll 1
        for (int i = 0; i < kPerThread; i++) {
            i32 c = candidate_column(i, thread);
            if (c < count) best = max(best, candidate_key(read_float(logits, from + c, a.type), from + c));
        }
        top[thread] = best;
        __syncthreads();
        i32 rank = 0;
        for (int t = 0; t < kThreads; t++) rank += top[t] > best || (top[t] == best && t < thread);
        if (rank == a.best - 1) whole_bound = best;
        if (thread == 0) listed = 0;
        __syncthreads();
#pragma unroll 1
        for (int i = 0; i < kPerThread; i++) {
            i32 c = candidate_column(i, thread);
            u64 key = c < count ? candidate_key(read_float(logits, from + c, a.type), from + c) : 0;
            if (key >= whole_bound && key != 0) list[atomicAdd(&listed, 1u)] = key;
        }
        __syncthreads();
    }
    i64 at = row * a.parts + part;
    u64* keys = a.keys + at * a.best;
    i32 length = listed;
    for (i32 i = thread; i < length; i += kThreads) {
        u64 key = list[i];
        i32 above = 0;
        for (i32 j = 0; j < length; j++) above += list[j] > key;
        if (above < a.best) keys[above] = key;
    }
    for (i32 i = length + thread; i < a.best; i += kThreads) keys[i] = 0;
    if (thread == 0) {
        sum = 0;
#pragma unroll
        for (int w = 0; w < kWarpsPerBlock; w++) sum = __fadd_rn(sum, reduced[1][w]);
        a.sums[at] = make_float2(high, sum);
    }
}

DEVICE void candidate_merge_body(const CandidatesArgs& a) {
    __shared__ u64 keys[kMostParts * kMostBest];
    begin_after_previous();
    i64 row = blockIdx.x;
    for (i32 i = threadIdx.x; i < a.parts * a.best; i += kThreads) keys[i] = a.keys[row * a.parts * a.best + i];
    __syncthreads();
    if (threadIdx.x >= 32) return;
    i32 lane = lane_id(), taken = 0;
    bool mine = lane < a.parts;
    for (i32 n = 0; n < a.best; n++) {
        u64 head = mine && taken < a.best ? keys[lane * a.best + taken] : 0, best = head;
#pragma unroll
        for (int d = 16; d > 0; d /= 2) best = max(best, __shfl_xor_sync(ptx::kFullMask, best, d));
        if (head == best) taken++;
        if (lane == 0) {
            a.ids[row * a.id_stride + n] = static_cast<i32>(~static_cast<u32>(best));
            a.values[row * a.value_stride + n] = candidate_value(best);
        }
    }
    float2 part = mine ? a.sums[row * a.parts + lane] : make_float2(__int_as_float(0xFF800000), 0.0f);
    f32 high = part.x;
#pragma unroll
    for (int d = 16; d > 0; d /= 2) high = fmaxf(high, __shfl_xor_sync(ptx::kFullMask, high, d));
    f32 sum = mine ? __fmul_rn(part.y, part.x == high ? 1.0f : __expf(__fsub_rn(part.x, high))) : 0.0f;
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(ptx::kFullMask, sum, d));
    // If the largest logit is infinite, the log-sum-exp equals it, unless the row has a NaN.
    bool infinite = (__float_as_uint(high) & kAbsMask) == kInfBits;
    if (lane == 0) a.log_sum[row] = sum == sum && infinite ? high : __fadd_rn(high, logf(sum));
}
