// Exact selection among the candidates in shared memory: the candidate of rank k, found by splitting the remaining range into bins.
// The list is in no particular order; candidates carry their positions, so the outcome does not depend on it.
// Every function here is called by all threads of the block.
#pragma once

#include "ptx/warp.cuh"
#include "sm90/topk/config.h"
#include "sm90/topk/keys.cuh"

namespace sparrow_topk {

template <class S>
struct Storage {
    float4 staged[kLaneQuads][S::Threads];  // each thread's current scores
    uint2 list[kList];                      // score bits and place, see Admitted
    u32 bins[S::Bins];
    u32 bitmap[kSegment / 32];              // all zero between uses
    u64 small_bin[kSmallBin];
    u32 warp_low[S::Warps], warp_high[S::Warps];
    u32 bin_sums[S::Warps];
    u32 warp_counts[2][S::Warps];           // two sets in turn, so that one barrier per use is enough
    u32 count;                              // scores that passed, also those for which the list had no room
    u32 stored;                             // entries of the list that are filled, when it overflowed
    u32 small_count;
};

// Where a thread stands.
struct Place {
    u32 thread, lane, warp;
};

// Smallest and largest key over the block. One barrier; callers keep another one between uses.
template <class S>
__device__ __forceinline__ void block_range(Storage<S>& shared, Place at, u32& low, u32& high) {
    low = ~ptx::warp_max(~low);
    high = ptx::warp_max(high);
    if (at.lane == 0) {
        shared.warp_low[at.warp] = low;
        shared.warp_high[at.warp] = high;
    }
    __syncthreads();
    low = ~ptx::warp_max(~shared.warp_low[at.lane % S::Warps]);
    high = ptx::warp_max(shared.warp_high[at.lane % S::Warps]);
}

// Exclusive prefix over the block of a count that each warp holds once. One barrier; `use` alternates between 0 and 1.
template <class S>
__device__ __forceinline__ u32 block_prefix(Storage<S>& shared, Place at, u32 warp_count, u32 use, u32& total) {
    if (at.lane == 0) {
        shared.warp_counts[use][at.warp] = warp_count;
    }
    __syncthreads();
    const u32 upto = ptx::warp_prefix(at.lane < S::Warps ? shared.warp_counts[use][at.lane] : 0, at.lane);
    total = __shfl_sync(ptx::kFullMask, upto, 31);
    return __shfl_sync(ptx::kFullMask, upto, at.warp) - warp_count;
}

template <class S>
__device__ __forceinline__ void clear_bins(Storage<S>& shared, Place at) {
    reinterpret_cast<uint4*>(shared.bins)[at.thread] = make_uint4(0, 0, 0, 0);
}

// The bin that holds rank `rank` (1 is the largest) counted from the top bin, the entries above it and its own.
struct BinRank {
    u32 bin, above, inside;
};

// Bins were filled before a barrier; inside is 0 when they hold fewer than `rank` entries. One barrier: every warp finds the answer by
// itself.
template <class S>
__device__ __forceinline__ BinRank find_bin(Storage<S>& shared, Place at, u32 rank) {
    const uint4* quads = reinterpret_cast<const uint4*>(shared.bins);
    const uint4 own = quads[at.thread];
    const u32 sum = ptx::warp_sum(own.x + own.y + own.z + own.w);
    if (at.lane == 0) {
        shared.bin_sums[at.warp] = sum;
    }
    __syncthreads();
    // Lane l looks at the l-th run of 128 bins from the top.
    u32 count = at.lane < S::Warps ? shared.bin_sums[S::Warps - 1 - at.lane] : 0;
    u32 upto = ptx::warp_prefix(count, at.lane);
    const u32 reached = __ballot_sync(ptx::kFullMask, upto >= rank);
    if (reached == 0) {
        return BinRank{0, 0, 0};
    }
    u32 first = __ffs(reached) - 1;
    u32 above = __shfl_sync(ptx::kFullMask, upto - count, first);
    const u32 run = S::Warps - 1 - first;
    // Inside the run lane l looks at the l-th group of four bins from the top.
    const uint4 group = quads[run * 32 + 31 - at.lane];
    count = group.x + group.y + group.z + group.w;
    upto = above + ptx::warp_prefix(count, at.lane);
    first = __ffs(__ballot_sync(ptx::kFullMask, upto >= rank)) - 1;
    above = __shfl_sync(ptx::kFullMask, upto - count, first);
    const u32 descending[4] = {__shfl_sync(ptx::kFullMask, group.w, first), __shfl_sync(ptx::kFullMask, group.z, first),
                               __shfl_sync(ptx::kFullMask, group.y, first), __shfl_sync(ptx::kFullMask, group.x, first)};
    BinRank found{(run * 32 + 31 - first) * 4 + 3, above, descending[0]};
#pragma unroll
    for (u32 i = 1; i < 4; ++i) {
        if (found.above + found.inside < rank) {
            found.above += found.inside;
            found.inside = descending[i];
            --found.bin;
        }
    }
    return found;
}

// The candidate of rank `rank` among `count` <= 32 distinct ones in small_bin. No barrier: every warp finds it by itself.
template <class S>
__device__ __forceinline__ u64 rank_small_bin(const Storage<S>& shared, Place at, u32 count, u32 rank) {
    const u64 own = at.lane < count ? shared.small_bin[at.lane] : 0;
    u32 greater = 0;
#pragma unroll 4
    for (u32 i = 0; i < count; ++i) {
        greater += shared.small_bin[i] > own;
    }
    const u32 holder = __ballot_sync(ptx::kFullMask, at.lane < count && greater == rank - 1);
    return __shfl_sync(ptx::kFullMask, own, __ffs(holder) - 1);
}

// The range of keys that the candidates are expected in; what lies outside counts in the end bins.
struct KeyRange {
    u32 low, high;
};

// The smallest of the k largest of `count` > k candidates. `own` are this thread's candidates, 0 where the list has ended.
// Each round splits the remaining range into 2048 or 4096 bins; usually one round leaves a handful of candidates.
template <class S>
__device__ __forceinline__ u64 find_cut(Storage<S>& shared, Place at, const u64 (&own)[S::ListSteps], u32 count, u32 k, KeyRange range) {
    clear_bins(shared, at);
    if (at.thread == 0) {
        shared.small_count = 0;
    }
    __syncthreads();
    u64 low = static_cast<u64>(range.low) << 32, high = static_cast<u64>(range.high) << 32 | 0xFFFFFFFFu;
    u64 floor = 1, ceiling = ~0ull;  // candidates still in question
    u32 rank = k;
    for (;;) {
        const u32 bits = 64 - __clzll(high - low);
        const u32 shift = bits > S::BinBits ? bits - S::BinBits : 0;
        const u32 top = static_cast<u32>((high - low) >> shift);
#pragma unroll
        for (int s = 0; s < S::ListSteps; ++s) {
            if (s * S::Threads < count && own[s] >= floor && own[s] <= ceiling) {
                atomicAdd(&shared.bins[static_cast<u32>((min(max(own[s], low), high) - low) >> shift)], 1u);
            }
        }
        __syncthreads();
        const BinRank found = find_bin(shared, at, rank);
        rank -= found.above;
        const u64 edge = low + (static_cast<u64>(found.bin) << shift);
        floor = found.bin == 0 ? floor : edge;
        ceiling = found.bin == top ? ceiling : edge + ((1ull << shift) - 1);
        if (found.inside == rank) {
            return floor;  // the whole bin is in
        }
        if (found.inside <= kSmallBin) {
#pragma unroll
            for (int s = 0; s < S::ListSteps; ++s) {
                if (s * S::Threads < count && own[s] >= floor && own[s] <= ceiling) {
                    shared.small_bin[atomicAdd(&shared.small_count, 1u)] = own[s];
                }
            }
            __syncthreads();
            return rank_small_bin(shared, at, found.inside, rank);
        }
        low = floor;
        high = ceiling;
        __syncthreads();  // every warp has read the bins
        clear_bins(shared, at);
        __syncthreads();
    }
}

}  // namespace sparrow_topk
