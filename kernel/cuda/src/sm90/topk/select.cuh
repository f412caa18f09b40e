// Exact selection among the candidates in shared memory: the candidate of rank k, found by splitting the remaining range into bins.
// The list is in no particular order; candidates carry their positions, so the outcome does not depend on it.
// Every function here is called by the selectors and only by them.
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/warp.cuh"
#include "sm90/topk/config.h"
#include "sm90/topk/keys.cuh"

namespace sparrow_topk {

template <class S>
struct Storage {
    float4 staged[kStagedQuads][S::Threads];  // each thread's current scores
    float values[kList];                    // the candidates' scores
    u32 positions[kList];                   // and their positions in the row
    u32 bins[S::Bins];
    u32 bitmap[kSegmentWords];              // winners by position; all zero between uses
    u64 small_bin[kSmallBin];
    u32 warp_low[S::SelectorWarps], warp_high[S::SelectorWarps];
    u32 bin_sums[S::SelectorWarps];
    u32 warp_counts[2][S::SelectorWarps];     // two sets in turn, so that one barrier per use is enough
    u32 count;                              // scores that passed, also those for which the list had no room
    u32 stored;                             // entries of the list that are filled, when it overflowed
    u32 small_count;
    float threshold;                        // from the selectors to all threads
    i32 next_first, next_last;              // likewise: scores of the next pass over the row, none when it is finished
};

// Where a thread stands.
struct Place {
    u32 thread, lane, warp;
};

template <class S>
__device__ __forceinline__ void selectors_sync() {
    ptx::block_sync<1, S::Selectors>();
}

// Smallest and largest key over the selectors. One barrier; callers keep another one between uses.
template <class S>
__device__ __forceinline__ void key_range(Storage<S>& shared, Place at, u32& low, u32& high) {
    low = ~ptx::warp_max(~low);
    high = ptx::warp_max(high);
    if (at.lane == 0) {
        shared.warp_low[at.warp] = low;
        shared.warp_high[at.warp] = high;
    }
    selectors_sync<S>();
    low = ~ptx::warp_max(~shared.warp_low[at.lane % S::SelectorWarps]);
    high = ptx::warp_max(shared.warp_high[at.lane % S::SelectorWarps]);
}

// Exclusive prefix over the selectors of a count that each warp holds once. One barrier; `use` alternates between 0 and 1.
template <class S>
__device__ __forceinline__ u32 warps_prefix(Storage<S>& shared, Place at, u32 warp_count, u32 use, u32& total) {
    if (at.lane == 0) {
        shared.warp_counts[use][at.warp] = warp_count;
    }
    selectors_sync<S>();
    const u32 count = at.lane < S::SelectorWarps ? shared.warp_counts[use][at.lane] : 0;
    total = ptx::warp_sum(count);
    return ptx::warp_sum(at.lane < at.warp ? count : 0);
}

template <class S>
__device__ __forceinline__ void clear_bins(Storage<S>& shared, Place at) {
    reinterpret_cast<uint4*>(shared.bins)[at.thread] = make_uint4(0, 0, 0, 0);
}

// The bin that holds rank `rank` (1 is the largest) counted from the top bin, the entries above it and its own.
struct BinRank {
    u32 bin, above, inside;
};

// Bins were filled before a barrier; inside is 0 when they hold fewer than `rank` entries. One barrier: every warp finds the answer
// by itself.
template <class S>
__device__ __forceinline__ BinRank find_bin(Storage<S>& shared, Place at, u32 rank) {
    const uint4* quads = reinterpret_cast<const uint4*>(shared.bins);
    const uint4 own = quads[at.thread];
    const u32 sum = ptx::warp_sum(own.x + own.y + own.z + own.w);
    if (at.lane == 0) {
        shared.bin_sums[at.warp] = sum;
    }
    selectors_sync<S>();
    // The run of 128 bins, from the top.
    u32 above = 0, run = S::SelectorWarps;
    for (;;) {
        if (run-- == 0) {
            return BinRank{0, 0, 0};
        }
        const u32 count = shared.bin_sums[run];
        if (above + count >= rank) {
            break;
        }
        above += count;
    }
    // Inside the run lane l looks at the l-th group of four bins from the top.
    const uint4 group = quads[run * 32 + 31 - at.lane];
    const u32 count = group.x + group.y + group.z + group.w;
    const u32 upto = above + ptx::warp_prefix(count, at.lane);
    const u32 first = __ffs(__ballot_sync(ptx::kFullMask, upto >= rank)) - 1;
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

// A range of keys. What lies above it counts in its top bin, what lies below in bin 0.
struct KeyRange {
    u32 low, high;

    // Key k falls into bin offset(k) >> shift.
    __device__ __forceinline__ u32 offset(u32 key) const { return min(max(key, low) - low, high - low); }

    template <class S>
    __device__ __forceinline__ u32 shift() const {
        const u32 bits = 32 - __clz(high - low);
        return bits > S::BinBits ? bits - S::BinBits : 0;
    }
};

// The smallest of the k largest of the list's `count` > k candidates. keys[s] is the key of entry s * Selectors + thread, 0 past the
// end; low_word(entry) the low word of an entry's candidate. One round of bins over the keys usually leaves a handful.
template <class S, class LowWord>
__device__ __forceinline__ u64 find_cut(Storage<S>& shared, Place at, const u32 (&keys)[S::ListSteps], u32 count, u32 k, KeyRange range,
                                        const LowWord& low_word) {
    clear_bins(shared, at);
    if (at.thread == 0) {
        shared.small_count = 0;
    }
    selectors_sync<S>();
    u32 shift = range.shift<S>();
#pragma unroll
    for (int s = 0; s < S::ListSteps; ++s) {
        if (s * S::Selectors < count && keys[s] != 0) {
            atomicAdd(&shared.bins[range.offset(keys[s]) >> shift], 1u);
        }
    }
    selectors_sync<S>();
    BinRank found = find_bin(shared, at, k);
    u32 rank = k - found.above;
    u32 low = found.bin == 0 ? 1 : range.low + (found.bin << shift);
    u32 high = found.bin == (range.high - range.low) >> shift ? ~0u : range.low + (found.bin << shift) + ((1u << shift) - 1);
    // More rounds, first over the keys, then, when one key is left, over the low words of its candidates.
    u32 tied = 0;
    while (found.inside > kSmallBin && found.inside != rank) {
        if (low == high) {
            tied = low;
            low = 0;
            high = ~0u;
        }
        const KeyRange rest{low, high};
        shift = rest.shift<S>();
        selectors_sync<S>();  // every warp has read the bins
        clear_bins(shared, at);
        selectors_sync<S>();
        for (u32 i = at.thread; i < count; i += S::Selectors) {
            const u32 key = key_of(shared.values[i]), word = tied ? low_word(i) : key;
            if ((!tied || key == tied) && word >= low && word <= high) {
                atomicAdd(&shared.bins[rest.offset(word) >> shift], 1u);
            }
        }
        selectors_sync<S>();
        found = find_bin(shared, at, rank);
        rank -= found.above;
        low = rest.low + (found.bin << shift);
        high = min(high, low + ((1u << shift) - 1));
    }
    if (found.inside == rank) {  // the whole bin is in
        return tied ? static_cast<u64>(tied) << 32 | low : static_cast<u64>(low) << 32;
    }
    const u32 low_key = tied ? tied : low, keys_open = tied ? 0 : high - low;
#pragma unroll
    for (int s = 0; s < S::ListSteps; ++s) {
        if (s * S::Selectors < count && keys[s] - low_key <= keys_open && keys[s] != 0) {
            const u32 word = low_word(s * S::Selectors + at.thread);
            if (!tied || (word >= low && word <= high)) {
                shared.small_bin[atomicAdd(&shared.small_count, 1u)] = static_cast<u64>(keys[s]) << 32 | word;
            }
        }
    }
    selectors_sync<S>();
    return rank_small_bin(shared, at, found.inside, rank);
}

}  // namespace sparrow_topk
