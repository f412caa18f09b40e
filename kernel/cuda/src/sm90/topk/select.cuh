// Exact selection among the candidates in shared memory: finds the candidate of rank k by repeatedly splitting the
// remaining range into bins. The list is not ordered; candidates contain their positions, so the result does not
// depend on the order. The first Threads threads of the block call every function here. M is the shared memory of the
// block; its Shape defines the numbers of threads and bins.
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/warp.cuh"
#include "sm90/topk/config.h"
#include "sm90/topk/keys.cuh"

namespace sparrow_topk {

// The bin that contains rank `rank` (1 is the largest), counted from the top bin; the number of entries in higher bins
// (above); and the number of entries in the bin (inside).
struct BinRank {
    u32 bin, above, inside;
};

// The position of a thread in its thread block.
struct Place {
    u32 thread, lane, warp;
};

// Sets low and high to the smallest and largest key over the block. It uses one barrier; callers must have another
// barrier between two calls.
template <class M>
__device__ __forceinline__ void key_range(M& shared, Place at, u32& low, u32& high) {
    low = ~ptx::warp_max(~low);
    high = ptx::warp_max(high);
    if (at.lane == 0) {
        shared.warp_low[at.warp] = low;
        shared.warp_high[at.warp] = high;
    }
    ptx::threads_sync<M::Shape::Threads>();
    low = ~ptx::warp_max(~shared.warp_low[at.lane % M::Shape::Warps]);
    high = ptx::warp_max(shared.warp_high[at.lane % M::Shape::Warps]);
}

// Returns the exclusive prefix sum over the warps of a count per warp. It uses one barrier; `use` alternates between 0
// and 1.
template <class M>
__device__ __forceinline__ u32 warps_prefix(M& shared, Place at, u32 warp_count, u32 use, u32& total) {
    if (at.lane == 0) {
        shared.warp_counts[use][at.warp] = warp_count;
    }
    ptx::threads_sync<M::Shape::Threads>();
    const u32 count = at.lane < M::Shape::Warps ? shared.warp_counts[use][at.lane] : 0;
    total = ptx::warp_sum(count);
    return ptx::warp_sum(at.lane < at.warp ? count : 0);
}

template <class M>
__device__ __forceinline__ void clear_bins(M& shared, Place at) {
    reinterpret_cast<uint4*>(shared.bins)[at.thread] = make_uint4(0, 0, 0, 0);
}

// Sums the bins, each warp over its own range of bins. A barrier must follow.
template <class M>
__device__ __forceinline__ void sum_bins(M& shared, Place at) {
    const uint4 own = reinterpret_cast<const uint4*>(shared.bins)[at.thread];
    const u32 sum = ptx::warp_sum(own.x + own.y + own.z + own.w);
    if (at.lane == 0) {
        shared.bin_sums[at.warp] = sum;
    }
}

// Searches the summed bins for rank `rank` >= 1. inside is 0 if they hold fewer entries. Only one warp calls it, so
// that it does not take issue slots from the other warps.
template <class M>
__device__ __forceinline__ void search_bins(M& shared, Place at, u32 rank, BinRank& result) {
    using S = typename M::Shape;
    // Lane l reads the l-th range of 128 bins from the top.
    u32 count = at.lane < S::Warps ? shared.bin_sums[S::Warps - 1 - at.lane] : 0;
    u32 upto = ptx::warp_prefix(count, at.lane);
    const u32 reached = __ballot_sync(ptx::kFullMask, upto >= rank);
    if (reached == 0) {
        if (at.lane == 0) {
            result = BinRank{0, 0, 0};
        }
        return;
    }
    const u32 first = __ffs(reached) - 1;
    const u32 above = __shfl_sync(ptx::kFullMask, upto - count, first);
    // Inside the range, lane l reads the l-th group of four bins from the top.
    const u32 quad = (S::Warps - 1 - first) * 32 + 31 - at.lane;
    const uint4 group = reinterpret_cast<const uint4*>(shared.bins)[quad];
    count = group.x + group.y + group.z + group.w;
    upto = above + ptx::warp_prefix(count, at.lane);
    const u32 reached_group = __ballot_sync(ptx::kFullMask, upto >= rank);
    if (at.lane == __ffs(reached_group) - 1) {
        BinRank found{quad * 4 + 3, upto - count, group.w};
        const u32 lower[3] = {group.z, group.y, group.x};
#pragma unroll
        for (int i = 0; i < 3; ++i) {
            if (found.above + found.inside < rank) {
                found = BinRank{found.bin - 1, found.above + found.inside, lower[i]};
            }
        }
        result = found;
    }
}

// Returns the bin of rank `rank` to every thread. The bins must have been filled before a barrier. It uses two
// barriers.
template <class M>
__device__ __forceinline__ BinRank find_bin(M& shared, Place at, u32 rank) {
    sum_bins(shared, at);
    ptx::threads_sync<M::Shape::Threads>();
    if (at.warp == 0) {
        search_bins(shared, at, rank, shared.found);
    }
    ptx::threads_sync<M::Shape::Threads>();
    return shared.found;
}

// Returns the candidate of rank `rank` among `count` <= 32 distinct candidates in small_bin. The first warp finds it
// for all threads. It uses one barrier.
template <class M>
__device__ __forceinline__ u64 rank_small_bin(M& shared, Place at, u32 count, u32 rank) {
    if (at.warp == 0) {
        const u64 own = at.lane < count ? shared.small_bin[at.lane] : 0;
        u32 greater = 0;
#pragma unroll 4
        for (u32 i = 0; i < count; ++i) {
            greater += shared.small_bin[i] > own;
        }
        if (at.lane < count && greater == rank - 1) {
            shared.cut = own;
        }
    }
    ptx::threads_sync<M::Shape::Threads>();
    return shared.cut;
}

// A range of keys. Keys above it are counted in its top bin, keys below it in bin 0.
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

// Returns the smallest of the k largest candidates of the list, which has `count` > k. keys[s] is the key of entry s *
// Threads + thread, or 0 past the end. After one round of bins over the keys, usually only a few candidates remain.
template <class M>
__device__ __forceinline__ u64 find_cut(M& shared, Place at, const u32 (&keys)[M::Shape::ListSteps], u32 count, u32 k,
    KeyRange range) {
    using S = typename M::Shape;
    auto low_word = [&](u32 i) { return ~shared.positions[i]; };
    clear_bins(shared, at);
    if (at.thread == 0) {
        shared.small_count = 0;
    }
    ptx::threads_sync<M::Shape::Threads>();
    u32 shift = range.shift<S>();
#pragma unroll
    for (int s = 0; s < S::ListSteps; ++s) {
        if (s * S::Threads < count && keys[s] != 0) {
            atomicAdd(&shared.bins[range.offset(keys[s]) >> shift], 1u);
        }
    }
    ptx::threads_sync<M::Shape::Threads>();
    BinRank found = find_bin(shared, at, k);
    u32 rank = k - found.above;
    u32 low = found.bin == 0 ? 1 : range.low + (found.bin << shift);
    u32 high = found.bin == (range.high - range.low) >> shift ? ~0u
        : range.low + (found.bin << shift) + ((1u << shift) - 1);
    // Further rounds: first over the keys, then, when only one key is left, over the low words (positions) of its
    // candidates.
    u32 tied = 0;
    while (found.inside > kSmallBin && found.inside != rank) {
        if (low == high) {
            tied = low;
            low = 0;
            high = ~0u;
        }
        const KeyRange rest{low, high};
        shift = rest.shift<S>();
        clear_bins(shared, at);
        ptx::threads_sync<M::Shape::Threads>();
        for (u32 i = at.thread; i < count; i += S::Threads) {
            const u32 key = key_of(shared.values[i]), word = tied ? low_word(i) : key;
            if ((!tied || key == tied) && word >= low && word <= high) {
                atomicAdd(&shared.bins[rest.offset(word) >> shift], 1u);
            }
        }
        ptx::threads_sync<M::Shape::Threads>();
        found = find_bin(shared, at, rank);
        rank -= found.above;
        low = rest.low + (found.bin << shift);
        high = min(high, low + ((1u << shift) - 1));
    }
    if (found.inside == rank) {  // all candidates of the bin are selected
        return tied ? static_cast<u64>(tied) << 32 | low : static_cast<u64>(low) << 32;
    }
    const u32 low_key = tied ? tied : low, keys_open = tied ? 0 : high - low;
#pragma unroll
    for (int s = 0; s < S::ListSteps; ++s) {
        if (s * S::Threads < count && keys[s] - low_key <= keys_open && keys[s] != 0) {
            const u32 word = low_word(s * S::Threads + at.thread);
            if (!tied || (word >= low && word <= high)) {
                shared.small_bin[atomicAdd(&shared.small_count, 1u)] = candidate(keys[s], ~word);
            }
        }
    }
    ptx::threads_sync<M::Shape::Threads>();
    return rank_small_bin(shared, at, found.inside, rank);
}

}  // namespace sparrow_topk
