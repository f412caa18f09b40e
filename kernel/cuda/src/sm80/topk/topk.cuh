// Exact top-k selection of every row of a score matrix, portable kernel (arguments: sm90/topk/args.h). Selected
// positions are in ascending order; on a tie the lower position is selected. NaN and -inf are not selected. A row with
// at most k candidates returns all of their positions.
//
// Block: 1024 threads, one row. Three histograms of 11, 11 and 10 bits of the score keys find the k-th largest key. A
//        fourth pass over the row writes, in order, the positions of all keys above it and of the first keys equal to
//        it.
// Bytes: Each score is read four times, mostly from L2.
#pragma once

#include "ptx/warp.cuh"
#include "sm90/topk/row.cuh"

namespace portable {

constexpr int kTopKThreads = 1024, kTopKWarps = kTopKThreads / 32, kTopKBins = 2048;

struct TopKStorage {
    u32 bins[kTopKBins];
    u32 sums[2][kTopKWarps];
    u32 digit, above;  // digit: bin of the k-th largest key; above: number of candidates in higher bins
};

// Returns the key of a candidate, or 0 for NaN and -inf, which are not selected.
__device__ __forceinline__ u32 selectable(float score) {
    if (!(score == score)) {
        return 0;
    }
    const u32 key = sparrow_topk::key_of(score);
    return key <= sparrow_topk::kKeyMinusInf ? 0 : key;
}

// Returns the sum of v over all lower threads, and sets total to the sum over all threads. Two arrays of sums are used
// alternately, so one barrier per call is enough.
__device__ __forceinline__ u32 sum_before(TopKStorage& shared, u32 v, u32 turn, u32& total) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 upto = ptx::warp_prefix(v, lane);
    if (lane == 31) {
        shared.sums[turn][warp] = upto;
    }
    __syncthreads();
    const u32 of_warp = shared.sums[turn][lane];
    total = ptx::warp_sum(of_warp);
    return ptx::warp_sum(lane < warp ? of_warp : 0) + upto - v;
}

// Finds the bin that contains the `want`-th largest key, counted from 1, and the number of keys in higher bins. want is
// at most the sum of the bins.
__device__ __forceinline__ void find_digit(TopKStorage& shared, u32 want) {
    constexpr u32 kEach = kTopKBins / kTopKThreads;
    const u32 first = kTopKBins - kEach * (threadIdx.x + 1);  // threads are in descending order of bins
    u32 own = 0, total;
#pragma unroll
    for (u32 i = 0; i < kEach; ++i) {
        own += shared.bins[first + i];
    }
    u32 before = sum_before(shared, own, 0, total);
    if (before < want && want <= before + own) {
        for (u32 bin = first + kEach - 1;; --bin) {
            if (want <= before + shared.bins[bin]) {
                shared.digit = bin;
                shared.above = before;
                break;
            }
            before += shared.bins[bin];
        }
    }
    __syncthreads();
}

__device__ __forceinline__ void select_row(const TopKArgs& args, i32 v) {
    __shared__ TopKStorage shared;
    const sparrow_topk::Row w = sparrow_topk::row_of(args, v);
    if (w.whole) {
        sparrow_topk::write_whole<kTopKThreads>(args, v, w);
        return;
    }
    const float* scores = w.scores + w.head;
    u32 prefix = 0, want = args.k;
    bool all = false;  // true: fewer than k candidates can be selected, so all are
#pragma unroll 1
    for (int pass = 0; pass < 3 && !all; ++pass) {
        const u32 shift = pass == 0 ? 21 : pass == 1 ? 10 : 0, bits = pass == 2 ? 10 : 11;
        for (u32 i = threadIdx.x; i < kTopKBins; i += kTopKThreads) {
            shared.bins[i] = 0;
        }
        __syncthreads();
        for (i32 i = threadIdx.x; i < w.length; i += kTopKThreads) {
            const u32 key = selectable(scores[i]);
            const bool counts = key != 0 && (pass == 0 || key >> (shift + bits) == prefix);
            if (counts) {
                atomicAdd(&shared.bins[key >> shift & ((1u << bits) - 1)], 1u);
            }
        }
        __syncthreads();
        if (pass == 0) {
            u32 own = 0, total;
#pragma unroll
            for (u32 i = 0; i < kTopKBins / kTopKThreads; ++i) {
                own += shared.bins[threadIdx.x + i * kTopKThreads];
            }
            sum_before(shared, own, 1, total);
            all = total <= want;
        }
        if (!all) {
            find_digit(shared, want);
            prefix = prefix << bits | shared.digit;
            want -= shared.above;
            __syncthreads();
        }
    }
    // All keys above the threshold are selected, and the first `want` keys equal to it.
    const u32 threshold = all ? 0 : prefix;
    u32 written = 0, equal = 0, turn = 0;
    const i64 to = static_cast<i64>(v) * args.k;
    for (i32 base = 0; base < w.length; base += kTopKThreads, turn ^= 1) {
        const i32 i = base + threadIdx.x;
        const u32 key = i < w.length ? selectable(scores[i]) : 0;
        const u32 above = key > threshold, same = !all && key == threshold && key != 0;
        u32 total;
        // One sum contains both counts, because each is at most 1024.
        const u32 before = sum_before(shared, above | same << 16, turn, total);
        const u32 same_before = equal + (before >> 16);
        if (above || (same && same_before < want)) {
            const u32 place = written + equal + (before & 0xFFFF) + min(before >> 16, want - min(equal, want));
            args.out[to + place] = sparrow_topk::transformed(args, w, i);
        }
        written += total & 0xFFFF;
        equal = min(equal + (total >> 16), want);
    }
    sparrow_topk::finish_row<kTopKThreads>(args, v, written + (all ? 0 : equal));
}

}  // namespace portable
