// Sorts and quantises the rows before the matrix products, in one launch.
//
// Block 0:    sorts the pairs (row, choice) by expert; the sort is stable. One warp sorts up to 32 pairs. For more
//             pairs, each warp counts the experts in its part of the pairs, sums over experts and warps give every
//             warp its output positions, and a second pass over the same parts writes the pairs. Block 0 also lists
//             the experts that have pairs.
// Blocks 1..: only for e4m3: quantise x per 128 columns. Half a warp quantises 128 columns, and a block 32 times 128
//             columns.
// Bytes:      x is read once and its codes are written once; block 0 reads the pairs twice, which takes some
//             microseconds.
//
// If the same launch also routes rows to experts, the first blocks route 16 rows each (smxx/route), and the last of
// them to finish sorts.
#pragma once

#include "ptx/warp.cuh"
#include "sm90/experts/args.h"
#include "smxx/floats.cuh"
#include "smxx/quant/divide.cuh"
#include "smxx/route/route.cuh"

namespace sparrow_experts {

constexpr int kPrepareThreads = 512;
constexpr int kPrepareBlocks = 3;  // blocks that share an SM
constexpr int kPrepareWarps = kPrepareThreads / 32;
constexpr int kSortedExperts = kPrepareThreads;  // maximum experts, one per thread
constexpr int kBlockTiles = kPrepareThreads / 16;

// Returns the expert id of a pair, unchecked, or -1 after the last pair. If kPacked, rows of ids are adjacent.
template <bool kPacked>
__device__ __forceinline__ i32 pair_id(const ExpertsArgs& args, i32 pair, i32 pairs) {
    i64 place = pair;
    if (!kPacked) {
        const i32 row = pair / args.top;
        place = row * args.id_stride + (pair - row * args.top);
    }
    // The load bypasses L1, because other blocks of this launch may have written the value.
    return pair < pairs ? __ldcg(args.ids + place) : -1;
}

// Returns a valid expert or -1. Reports an expert id >= args.experts as a fault.
__device__ __forceinline__ i32 checked_id(const ExpertsArgs& args, i32 id) {
    if (id >= args.experts) {
        raise_fault(args.faults, kFaultExpert);
        return -1;
    }
    return id;
}

// Returns the exclusive prefix sum of v over the threads of the block. total gets the sum over all threads.
__device__ __forceinline__ u32 block_prefix(u32 v, u32* scratch, u32& total) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 inclusive = ptx::warp_prefix(v, lane);
    __syncthreads();
    if (lane == 31) {
        scratch[warp] = inclusive;
    }
    __syncthreads();
    u32 before = 0;
    total = 0;
#pragma unroll
    for (int w = 0; w < kPrepareWarps; ++w) {
        before += w < static_cast<int>(warp) ? scratch[w] : 0;
        total += scratch[w];
    }
    return before + inclusive - v;
}

// Sorts up to 32 pairs with one warp. A lane finds its output position by comparing its expert with the experts of all
// other lanes.
__device__ __forceinline__ void sort_few(const ExpertsArgs& args, i32 pairs) {
    const i32 lane = threadIdx.x, e = checked_id(args, pair_id<false>(args, lane, pairs));
    const u32 same = __match_any_sync(ptx::kFullMask, e);
    const bool first = e >= 0 && (same & ((1u << lane) - 1)) == 0;
    const u32 listed = __ballot_sync(ptx::kFullMask, first), valid = __ballot_sync(ptx::kFullMask, e >= 0);
    i32 place = 0, before = 0;
#pragma unroll
    for (int j = 0; j < 32; ++j) {
        const i32 other = __shfl_sync(ptx::kFullMask, e, j);
        place += other >= 0 && (other < e || (other == e && j < lane));
        before += (listed >> j & 1) && other < e;
    }
    if (e >= 0) {
        args.order[place] = lane;
    }
    if (first) {  // one group, because an expert has at most 32 pairs
        args.list[before] = ListedView{e, place, __popc(same), before};
    }
    if (lane == 0) {
        args.totals[0] = args.totals[1] = __popc(listed);
        args.totals[2] = __popc(valid);
    }
}

// Pairs whose experts a lane loads together, 32 pairs apart, to overlap the loads: a single block sorts all pairs.
constexpr int kPairsAhead = 6;

__device__ __forceinline__ void load_ids(const ExpertsArgs& args, i32 pair, i32 end, i32 (&ids)[kPairsAhead]) {
    if (args.id_stride == args.top) {
#pragma unroll
        for (int i = 0; i < kPairsAhead; ++i) {
            ids[i] = pair_id<true>(args, pair + 32 * i, end);
        }
    } else {
#pragma unroll
        for (int i = 0; i < kPairsAhead; ++i) {
            ids[i] = pair_id<false>(args, pair + 32 * i, end);
        }
    }
#pragma unroll
    for (int i = 0; i < kPairsAhead; ++i) {
        ids[i] = checked_id(args, ids[i]);
    }
}

// Returns the lanes of a full warp that have the same expert as this lane; -1 counts as an expert. One vote per bit
// takes less time than an instruction that compares all lanes.
__device__ __forceinline__ u32 same_expert(i32 e) {
    static_assert(kSortedExperts == 1 << 9, "bit 9 must be set only in -1");
    u32 same = ptx::kFullMask;
#pragma unroll
    for (int bit = 0; bit < 10; ++bit) {
        const bool set = e >> bit & 1;
        const u32 lanes = __ballot_sync(ptx::kFullMask, set);
        same &= set ? lanes : ~lanes;
    }
    return same;
}

// A word for each expert of each warp. It holds the biased scores of the row that the warp routes, and later the output
// positions of pairs.
struct WarpWords {
    u32 of[kPrepareWarps][kSortedExperts];
};

__device__ __forceinline__ void sort_pairs(const ExpertsArgs& args, WarpWords& words) {
    if (args.rows * args.top <= 32) {
        if (threadIdx.x < 32) {
            sort_few(args, args.rows * args.top);
        }
        return;
    }
    auto& places = words.of;
    __shared__ u32 scratch[kPrepareWarps];
    const i32 pairs = args.rows * args.top;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i32 share = (pairs + kPrepareThreads - 1) / kPrepareThreads * 32;
    const i32 begin = warp * share, end = min(pairs, begin + share);
    for (i32 e = threadIdx.x; e < kPrepareWarps * kSortedExperts; e += kPrepareThreads) {
        places[0][e] = 0;
    }
    __syncthreads();
    for (i32 at = begin; at < end; at += 32 * kPairsAhead) {
        i32 ids[kPairsAhead];
        load_ids(args, at + lane, end, ids);
#pragma unroll
        for (int i = 0; i < kPairsAhead; ++i) {
            if (ids[i] >= 0) {
                atomicAdd(&places[warp][ids[i]], 1u);
            }
        }
    }
    __syncthreads();
    u32 count = 0;
    const i32 expert = threadIdx.x;
    if (expert < args.experts) {
#pragma unroll
        for (int w = 0; w < kPrepareWarps; ++w) {
            const u32 n = places[w][expert];
            places[w][expert] = count;
            count += n;
        }
    }
    u32 total, counts;
    const u32 first = block_prefix(count, scratch, total);
    const u32 groups = (count + args.group_rows - 1) / args.group_rows;
    // One prefix sum computes both counts: listed experts in the upper bits, groups in the lower bits.
    const u32 before = block_prefix((count > 0 ? 1u << 20 : 0u) | groups, scratch, counts);
    if (expert < args.experts) {
#pragma unroll
        for (int w = 0; w < kPrepareWarps; ++w) {
            places[w][expert] += first;
        }
        if (count > 0) {
            args.list[before >> 20] = ListedView{expert, static_cast<i32>(first), static_cast<i32>(count),
                                                 static_cast<i32>(before & 0xFFFFF)};
        }
    }
    if (threadIdx.x == 0) {
        args.totals[0] = counts >> 20;
        args.totals[1] = counts & 0xFFFFF;
        args.totals[2] = total;
    }
    __syncthreads();
    for (i32 at = begin; at < end; at += 32 * kPairsAhead) {
        i32 ids[kPairsAhead];
        load_ids(args, at + lane, end, ids);
#pragma unroll
        for (int i = 0; i < kPairsAhead; ++i) {
            const i32 e = ids[i];
            const u32 same = same_expert(e);
            u32 place = 0;
            if (e >= 0) {
                place = places[warp][e];
                args.order[place + __popc(same & ((1u << lane) - 1))] = at + 32 * i + lane;
            }
            __syncwarp();
            if (e >= 0 && (same >> lane) == 1) {  // the last of the lanes that have this expert
                places[warp][e] = place + __popc(same);
            }
            __syncwarp();
        }
    }
}

__device__ __forceinline__ void quantise_rows(const ExpertsArgs& args, i32 quantised_block) {
    const i64 tile = static_cast<i64>(quantised_block) * kBlockTiles + threadIdx.x / 16;
    if (tile >= static_cast<i64>(args.rows) * args.hidden_blocks) {
        return;
    }
    const i64 row = tile / args.hidden_blocks;
    const i32 block = static_cast<i32>(tile - row * args.hidden_blocks), column = block * 128 + 8 * (threadIdx.x % 16);
    const u32 half = 0xFFFFu << (threadIdx.x & 16);
    f32 v[8] = {};
    if (column < args.hidden) {
        unpack_8(*reinterpret_cast<const uint4*>(args.x + row * args.x_stride + column), v);
    }
    u32 most = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        most = max(most, __float_as_uint(v[i]) & kAbsMask);
    }
    const bool plain = most < kInfBits;  // no infinity and no NaN, which is the usual case
    if (!plain) {
        most = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            most = max(most, magnitude(v[i]));
        }
    }
#pragma unroll
    for (int d = 1; d < 16; d *= 2) {
        most = max(most, __shfl_xor_sync(half, most, d));
    }
    const f32 scale = index_scale(__uint_as_float(most), !args.pow2);
    if (column < args.hidden) {
        // The inverse of a power of two between 2^-23 and 2^120 is computed from its exponent.
        const f32 inverse = args.pow2 ? __uint_as_float(0x7F000000u - __float_as_uint(scale)) : __frcp_rn(scale);
        uint2 codes;
        if (plain) {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                v[i] = args.pow2 ? __fmul_rn(v[i], inverse) : over_scale(v[i], scale, inverse);
            }
            codes = make_uint2(pack_e4m3_fast(v[0], v[1]) | pack_e4m3_fast(v[2], v[3]) << 16,
                               pack_e4m3_fast(v[4], v[5]) | pack_e4m3_fast(v[6], v[7]) << 16);
        } else {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                v[i] = over(v[i], scale);
            }
            codes = make_uint2(pack_e4m3(v[0], v[1], v[2], v[3]), pack_e4m3(v[4], v[5], v[6], v[7]));
        }
        *reinterpret_cast<uint2*>(args.codes + row * args.hidden_pitch + column) = codes;
    }
    if (threadIdx.x % 16 == 0) {
        args.code_scales[row * args.hidden_blocks + block] = scale;
    }
}

__device__ __forceinline__ void prepare(const ExpertsArgs& args) {
    __shared__ WarpWords words;
    ptx::wait_for_previous_kernel();
    ptx::release_next_kernel();
    if (blockIdx.x == 0) {
        sort_pairs(args, words);
    } else {
        quantise_rows(args, blockIdx.x - 1);
    }
}

__device__ __forceinline__ void route_and_prepare(const RouteExpertsArgs& args) {
    __shared__ WarpWords words;
    __shared__ u32 last;
    ptx::wait_for_previous_kernel();
    ptx::release_next_kernel();
    const i32 block = blockIdx.x, warp = threadIdx.x / 32;
    if (block >= args.blocks) {
        quantise_rows(args.experts, block - args.blocks);
        return;
    }
    const i64 first = static_cast<i64>(block) * kPrepareWarps;
    const i32 rows = static_cast<i32>(min(static_cast<i64>(kPrepareWarps), args.route.rows - first));
    // For few rows, all warps compute the scores of each row, because exponentials and logarithms in float64 take most
    // of the time.
    const i32 each = kPrepareWarps / rows;  // warps per row
    if (each > 1 && args.route.table == nullptr) {
        if (warp < each * rows) {
            score_experts(args.route, first + warp / each, reinterpret_cast<f32*>(words.of[warp / each]), warp % each,
                          each);
        }
        __syncthreads();
        if (warp < rows) {
            choose_experts(args.route, first + warp, reinterpret_cast<f32*>(words.of[warp]));
        }
    } else if (warp < rows) {
        route_row(args.route, first + warp, reinterpret_cast<f32*>(words.of[warp]));
    }
    if (args.blocks == 1) {
        __syncthreads();
        sort_pairs(args.experts, words);
        return;
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(args.arrived, 1u) + 1 == static_cast<u32>(args.blocks);
        if (last) {
            *args.arrived = 0;
        }
        __threadfence();
    }
    __syncthreads();
    if (last) {
        sort_pairs(args.experts, words);
    }
}

}  // namespace sparrow_experts
