// Routing to experts. Scores are sigmoid(logits) or sqrt(softplus(logits)). The bias is added only for the choice.
// The keep_groups groups with the largest sums of their two best biased scores remain. Of their experts, the `top`
// experts with the best biased scores are chosen, best first; the lower index wins a tie. If a table is given, the
// experts are instead read from the table entry of the row's token. Weights are the scores, divided by their sum if
// requested, times scale.
//
// In:    logits f32 [rows, experts], bias f32 [experts] or table i32 [., top] and tokens i32 [rows].
// Out:   ids i32 and weights f32 [rows, top]. A token outside the table, or an expert out of range, raises a fault.
// Block: 8 warps, one row per warp, biased scores of up to 1024 experts in shared memory. Scores are computed in
//        float64 and rounded to float32, so that ties are those of the reference.
// Bytes: a row of logits is read.
// H200:  256 experts: 1 row 5.9 us, 64 rows 6.4, 4096 rows 12.1. The time is latency: exponentials in float64, then
//        top + keep_groups reductions over a warp.
#pragma once
#include "smxx/floats.cuh"
#include "smxx/route/args.h"

constexpr i32 kMaxExperts = 1024;
#define kLowest __int_as_float(0xFF800000) // minus infinity

DEVICE f32 route_score(const RouteArgs& a, f32 logit) {
    const f64 z = logit, small = exp(a.root ? -fabs(z) : -z);
    return __double2float_rn(a.root ? sqrt(fmax(z, 0.0) + log1p(small)) : 1.0 / (1.0 + small));
}

// Returns an integer with the order of the float; -0 counts as 0.
DEVICE u32 ordered_bits(f32 f) {
    u32 b = __float_as_uint(f + 0.0f);
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}

// Returns the lane of the largest value; the lowest lane wins a tie.
DEVICE i32 warp_best(u64 v) {
    u32 high = static_cast<u32>(v >> 32), best = ptx::warp_max(high);
    u32 low = high == best ? static_cast<u32>(v) : 0u, rest = ptx::warp_max(low);
    return __ffs(__ballot_sync(ptx::kFullMask, high == best && low == rest)) - 1;
}

// Returns an integer with the order of the double; -0 counts as 0.
DEVICE u64 ordered_bits(f64 f) {
    u64 b = static_cast<u64>(__double_as_longlong(f + 0.0));
    return b >> 63 ? ~b : b | (1ull << 63);
}

// Returns the expert that the table lists as choice j for the row's token, in lane j of a warp.
DEVICE i32 listed_expert(const RouteArgs& a, i64 row) {
    const i32 lane = lane_id(), token = a.tokens[row * a.token_stride];
    if (lane >= a.top) return 0;
    if (token < 0 || token >= a.table_rows) {
        raise_fault(a.faults, kFaultRow);
        return 0;
    }
    const i32 expert = a.table[token * a.table_stride + lane];
    if (expert >= 0 && expert < a.experts) return expert;
    raise_fault(a.faults, kFaultExpert);
    return 0;
}

// Computes the biased scores of a row: warp number `warp` of `warps` computes its share.
DEVICE void score_experts(const RouteArgs& a, i64 row, f32* biased, i32 warp, i32 warps) {
    const f32* logits = a.logits + row * a.logit_stride;
#pragma unroll 4
    for (i32 e = 32 * warp + lane_id(); e < a.experts; e += 32 * warps) {
        biased[e] = __fadd_rn(route_score(a, logits[e]), a.bias[e]);
    }
}

// Returns in lane j of a warp the expert of choice j, by the biased scores in the warp's shared memory.
DEVICE i32 best_expert(const RouteArgs& a, f32* biased) {
    i32 lane = lane_id(), size = a.experts / a.groups;
    if (a.keep_groups < a.groups) {
        // The number of lanes of a group is a power of two, the largest that fits. Each lane finds its two best scores;
        // these are reduced to the two best of the group. Their sum is exact in float64, as in the reference.
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
        // Lane g receives the result of the lanes of group g.
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
        __syncwarp(); // all lanes have read their scores
        for (i32 e = lane; e < a.experts; e += 32) {
            if (!(kept >> (e / size) & 1)) biased[e] = kLowest;
        }
        __syncwarp();
    }
    i32 mine = 0; // the expert of choice number `lane`
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
        __syncwarp(); // all lanes have read their scores
        if (lane == 0) biased[e] = kLowest;
        __syncwarp();
    }
    return mine;
}

// Chooses the experts of a row, by one warp. biased holds the scores, which all lanes must be able to read.
DEVICE void choose_experts(const RouteArgs& a, i64 row, f32* biased) {
    const i32 lane = lane_id();
    const f32* logits = a.logits + row * a.logit_stride;
    const i32 mine = a.table != nullptr ? listed_expert(a, row) : best_expert(a, biased);
    f32 score = lane < a.top ? route_score(a, logits[mine]) : 0.0f;
    f64 divisor = 1.0;
    if (a.normalize) {
        f64 sum = 0;
        for (i32 j = 0; j < a.top; j++) sum = __dadd_rn(sum, __shfl_sync(ptx::kFullMask, score, j));
        divisor = __dadd_rn(sum, 1e-20);
    }
    if (lane < a.top) {
        a.ids[row * a.id_stride + lane] = mine;
        const f64 share = static_cast<f64>(score) / divisor;
        a.weights[row * a.weight_stride + lane] = __double2float_rn(__dmul_rn(share, a.scale));
    }
}

// Scores and chooses the experts of a row, by one warp. biased is shared memory for a.experts scores.
DEVICE void route_row(const RouteArgs& a, i64 row, f32* biased) {
    if (a.table == nullptr) score_experts(a, row, biased, 0, 1);
    __syncwarp();
    choose_experts(a, row, biased);
}

DEVICE void route_body(const RouteArgs& a) {
    __shared__ f32 shared[kWarpsPerBlock][kMaxExperts];
    begin_after_previous();
    i64 row = warp_row();
    if (row < a.rows) route_row(a, row, shared[threadIdx.x / 32]);
}
