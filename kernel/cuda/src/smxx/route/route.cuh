// Choice of experts: scores are sigmoid(logits); the bias is added for the choice only; the best keep_groups of groups
// by the sum of their two best biased scores remain; the top best biased experts are chosen, best first, the lower
// index on a tie. Weights are the scores, over their sum where asked, times scale.
//
// In       logits f32 [rows, experts], bias f32 [experts]. Out: ids i32 and weights f32 [rows, top].
// Block    8 warps, one row each, biased scores of up to 1024 experts in shared memory. Scores are computed in float64
//          and rounded to float32, so ties are those of the reference.
// Bytes    a row of logits read.
// H200     256 experts: 1 row 5.9 us, 64 rows 6.4, 4096 rows 12.1. Latency sets the time: exponentials in float64, then
//          top + keep_groups reductions over a warp.
#pragma once
#include "smxx/num.cuh"
#include "smxx/route/args.h"

constexpr i32 kMaxExperts = 1024;
#define kLowest __int_as_float(0xFF800000) // minus infinity

DEVICE f32 route_score(f32 logit) { return __double2float_rn(1.0 / (1.0 + exp(-static_cast<f64>(logit)))); }

// Order of floats as order of integers; -0 counts as 0.
DEVICE u32 ordered_bits(f32 f) {
    u32 b = __float_as_uint(f + 0.0f);
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}

// The lane of the largest value, the lowest of them on a tie.
DEVICE i32 warp_best(u64 v) {
    u32 high = static_cast<u32>(v >> 32), best = ptx::warp_max(high);
    u32 low = high == best ? static_cast<u32>(v) : 0u, rest = ptx::warp_max(low);
    return __ffs(__ballot_sync(ptx::kFullMask, high == best && low == rest)) - 1;
}

// Order of doubles as order of integers.
DEVICE u64 ordered_bits(f64 f) {
    u64 b = static_cast<u64>(__double_as_longlong(f + 0.0));
    return b >> 63 ? ~b : b | (1ull << 63);
}

// A warp chooses the experts of a row; biased is its shared memory for as many scores.
DEVICE void route_row(const RouteArgs& a, i64 row, f32* biased) {
    i32 lane = lane_id(), size = a.experts / a.groups;
    const f32* logits = a.logits + row * a.logit_stride;
#pragma unroll 4
    for (i32 e = lane; e < a.experts; e += 32) biased[e] = __fadd_rn(route_score(logits[e]), a.bias[e]);
    __syncwarp();
    if (a.keep_groups < a.groups) {
        // Each group has as many lanes as fit, a power of two: their two best, in the end the group's. The sum is exact
        // in float64 as the reference's.
        i32 lanes = 1 << (31 - __clz(32 / a.groups)), group = lane / lanes;
        f32 first = kLowest, second = kLowest;
        if (group < a.groups) {
            for (i32 i = lane % lanes; i < size; i += lanes) {
                f32 b = biased[group * size + i];
                second = fmaxf(second, fminf(first, b));
                first = fmaxf(first, b);
            }
        }
        for (i32 d = 1; d < lanes; d *= 2) {
            f32 one = __shfl_xor_sync(ptx::kFullMask, first, d), two = __shfl_xor_sync(ptx::kFullMask, second, d);
            second = fmaxf(fmaxf(second, two), fminf(first, one));
            first = fmaxf(first, one);
        }
        // Lane g takes over what the lanes of group g have.
        first = __shfl_sync(ptx::kFullMask, first, min(lane * lanes, 31));
        second = __shfl_sync(ptx::kFullMask, second, min(lane * lanes, 31));
        if (size == 1) second = 0;
        u64 rank = lane < a.groups ? ordered_bits(__dadd_rn(first, second)) : 0;
        u32 kept = 0;
        for (i32 i = 0; i < a.keep_groups; i++) {
            i32 winner = warp_best(rank);
            kept |= 1u << winner;
            if (lane == winner) rank = 0;
        }
        __syncwarp(); // every lane has read its scores
        for (i32 e = lane; e < a.experts; e += 32) {
            if (!(kept >> (e / size) & 1)) biased[e] = kLowest;
        }
        __syncwarp();
    }
    i32* ids = a.ids + row * a.id_stride;
    f32* weights = a.weights + row * a.weight_stride;
    i32 mine = 0; // the choice of this lane's number
    for (i32 j = 0; j < a.top; j++) {
        u32 best = 0;
        i32 e = kMaxExperts;
#pragma unroll 4
        for (i32 i = lane; i < a.experts; i += 32) {
            u32 order = ordered_bits(biased[i]);
            if (order > best) {
                best = order;
                e = i;
            }
        }
        u32 most = ptx::warp_max(best);
        e = min(ptx::warp_min_signed(best == most ? e : kMaxExperts), a.experts - 1);
        if (lane == j) mine = e;
        __syncwarp(); // every lane has read its scores
        if (lane == 0) biased[e] = kLowest;
        __syncwarp();
    }
    f32 score = lane < a.top ? route_score(logits[mine]) : 0.0f;
    f64 divisor = 1.0;
    if (a.normalize) {
        f64 sum = 0;
        for (i32 j = 0; j < a.top; j++) sum = __dadd_rn(sum, __shfl_sync(ptx::kFullMask, score, j));
        divisor = __dadd_rn(sum, 1e-20);
    }
    if (lane < a.top) {
        ids[lane] = mine;
        weights[lane] = __double2float_rn(__dmul_rn(static_cast<f64>(score) / divisor, a.scale));
    }
}

DEVICE void route_body(const RouteArgs& a) {
    __shared__ f32 shared[kWarpsPerBlock][kMaxExperts];
    begin_after_previous();
    i64 row = warp_row();
    if (row < a.rows) route_row(a, row, shared[threadIdx.x / 32]);
}
