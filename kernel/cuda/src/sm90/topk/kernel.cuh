// Top-k of every row of a score matrix: exact, deterministic, ascending positions, lowest position wins a tie; NaN and -inf are never
// selected; a row with at most k candidates gives all its positions without its scores being read.
//
// In:    scores f32 [rows, stride], lengths i32 [rows], optionally the column of position 0 of each row (args.h).
// Out:   i32 [rows, k], positions or their paged or ragged transform, padded with -1.
// Block: one row at a time, rows dealt round robin over the grid. The grid may have any size; one or two blocks per SM are resident.
// How:   1. each warp loads its first chunk of the row; some of these scores form a sample, which gives a threshold that k scores
//           exceed with a margin of 4.5 standard deviations;
//        2. the row streams through registers and every score above the threshold joins a list of at most 4096 candidates;
//        3. the list is cut to its k largest by a histogram over the candidates' range;
//        4. winners set bits in a bitmap over positions, which is read out in order.
//        If the list overflows, the k-th largest of what it holds is a better threshold, and the row is read again; if too few scores
//        pass, it is read again from -inf. If ties defeat even that, it is read in windows that fit, the list being cut to k whenever
//        it is full: a later score equal to the smallest kept one loses its tie by position. The threshold decides speed, never the
//        result.
// Bytes: each score is read once from global memory, k indices are written.
#pragma once

#include "sm90/topk/args.h"
#include "sm90/topk/select.cuh"

namespace sparrow_topk {

// One row as the kernel sees it: `head` scores that are not part of it come first, because loads are 16 bytes wide.
struct Row {
    const float* scores;  // 16-byte aligned
    i32 length;           // candidates
    i32 head;             // 0 to 3

    __device__ __forceinline__ i32 end() const { return head + length; }
};

template <class S>
struct TopK {
    const TopKArgs& args;
    Storage<S>& shared;
    const Place at;
    u32 prefix_use = 0;

    __device__ __forceinline__ TopK(const TopKArgs& a, Storage<S>& s)
        : args(a), shared(s), at{threadIdx.x, threadIdx.x % 32, threadIdx.x / 32} {}

    __device__ __forceinline__ Row row(i32 r) const {
        const i32 start = args.starts ? args.starts[r] : 0;
        const i32 head = start & 3;
        return Row{args.scores + r * args.stride + (start - head), max(args.lengths[r], 0), head};
    }

    __device__ __forceinline__ u32 next_use() { return prefix_use ^= 1; }

    // ---- reading scores -----------------------------------------------------------------------------------------------------

    struct Chunk {
        float4 v[kLaneQuads];  // quad q of lane l: scores first + q*128 + l*4 ...
    };

    // Keeps the compiler from carrying values derived from a chunk past this point: there are no registers for them.
    static __device__ __forceinline__ void forget_derived(Chunk& c) {
#pragma unroll
        for (int q = 0; q < kLaneQuads; ++q) {
            asm volatile("" : "+f"(c.v[q].x), "+f"(c.v[q].y), "+f"(c.v[q].z), "+f"(c.v[q].w));
        }
    }

    // Scores outside the row read as -inf.
    __device__ __forceinline__ void load(const Row& w, i32 first, Chunk& c) const {
        const float* from = w.scores + first + at.lane * 4;
        if (first >= w.head && first + kChunk <= w.end()) {
#pragma unroll
            for (int q = 0; q < kLaneQuads; ++q) {
                c.v[q] = *reinterpret_cast<const float4*>(from + q * 128);
            }
            return;
        }
#pragma unroll
        for (int q = 0; q < kLaneQuads; ++q) {
            const i32 i = first + q * 128 + at.lane * 4;
            c.v[q] = make_float4(minus_inf(), minus_inf(), minus_inf(), minus_inf());
            if (i < w.end()) {
                const float4 v = *reinterpret_cast<const float4*>(from + q * 128);
                c.v[q].x = i >= w.head ? v.x : minus_inf();
                c.v[q].y = i + 1 >= w.head && i + 1 < w.end() ? v.y : minus_inf();
                c.v[q].z = i + 2 >= w.head && i + 2 < w.end() ? v.z : minus_inf();
                c.v[q].w = i + 3 >= w.head && i + 3 < w.end() ? v.w : minus_inf();
            }
        }
    }

    // The run of chunks that a warp reads: [first, last) in scores.
    struct Run {
        i32 first, last;
    };

    __device__ __forceinline__ Run run_of_warp(i32 first, i32 last) const {
        const i32 chunks = (last - first + kChunk - 1) / kChunk;
        const i32 length = (chunks + S::Warps - 1) / S::Warps * kChunk;
        const i32 from = min(first + static_cast<i32>(at.warp) * length, last);
        return Run{from, min(from + length, last)};
    }

    // ---- the threshold ------------------------------------------------------------------------------------------------------

    // A score that, judged by the warps' first chunks, somewhat more than k scores of the row exceed. `range` becomes the range of keys
    // above it, as far as the sample shows.
    __device__ __forceinline__ float estimate(const Row& w, Chunk& c, KeyRange& range) {
        const bool thin = w.length <= kSparseSample;
        u32 low = ~0u, high = 0;
        auto widen = [&](float x) {
            if (x > minus_inf()) {
                low = min(low, key_of(x));
                high = max(high, key_of(x));
            }
        };
#pragma unroll
        for (int q = 0; q < kLaneQuads; ++q) {
            widen(c.v[q].x);
            if (!thin) {
                widen(c.v[q].y), widen(c.v[q].z), widen(c.v[q].w);
            }
        }
        clear_bins(shared, at);
        block_range(shared, at, low, high);
        range = KeyRange{low, high};
        if (low >= high) {
            range = KeyRange{kKeyMinusInf, kKeyMaxFinite};
            return minus_inf();  // no two different numbers
        }
        forget_derived(c);
        const u32 bits = 32 - __clz(high - low);
        const u32 shift = bits > S::BinBits ? bits - S::BinBits : 0;
        auto tally = [&](float x) {
            if (x > minus_inf()) {
                atomicAdd(&shared.bins[(key_of(x) - low) >> shift], 1u);
            }
        };
#pragma unroll
        for (int q = 0; q < kLaneQuads; ++q) {
            tally(c.v[q].x);
            if (!thin) {
                tally(c.v[q].y), tally(c.v[q].z), tally(c.v[q].w);
            }
        }
        // Scores seen by the sample: the chunks that warps hold, all of them or a quarter.
        const i32 chunks = (w.end() + kChunk - 1) / kChunk, per_warp = (chunks + S::Warps - 1) / S::Warps;
        const i32 seen = (chunks + per_warp - 1) / per_warp * (thin ? kChunk / 4 : kChunk);
        const float expected = static_cast<float>(args.k) * seen / w.length;
        const u32 rank = static_cast<u32>(expected + 4.5f * sqrtf(expected)) + 4;
        __syncthreads();
        const BinRank found = find_bin(shared, at, rank);
        if (found.inside == 0) {
            return minus_inf();  // too few numbers in the sample
        }
        // Inside a thin bin interpolate; a thick one is taken whole, it may be one value many times over.
        u32 key = low + (found.bin << shift);
        if (found.inside * 16 <= static_cast<u32>(seen)) {
            key += static_cast<u32>((static_cast<float>(found.inside - (rank - found.above)) / found.inside) * (1u << shift));
        }
        key = just_below(min(key, kKeyMaxFinite));
        range.low = key;
        return score_of(key);
    }

    // ---- filling the list ---------------------------------------------------------------------------------------------------

    // Adds one chunk's scores above the threshold to the list. When they do not fit, they are counted but not stored.
    // A list entry holds the score's bits and its place: first | lane << 5 | element of the lane.
    __device__ __forceinline__ void admit(i32 first, const Chunk& c, float threshold) {
        u32 marks = 0;  // element i of the lane in bit 31 - i: the sign of threshold - score, which NaN does not have
#pragma unroll
        for (int q = 0; q < kLaneQuads; ++q) {
            marks = __funnelshift_l(__float_as_uint(threshold - c.v[q].x), marks, 1);
            marks = __funnelshift_l(__float_as_uint(threshold - c.v[q].y), marks, 1);
            marks = __funnelshift_l(__float_as_uint(threshold - c.v[q].z), marks, 1);
            marks = __funnelshift_l(__float_as_uint(threshold - c.v[q].w), marks, 1);
        }
        const u32 own = __popc(marks);
        const u32 upto = ptx::warp_prefix(own, at.lane);
        const u32 total = __shfl_sync(ptx::kFullMask, upto, 31);
        if (total == 0) {
            return;
        }
        u32 place = 0;
        if (at.lane == 0) {
            place = atomicAdd(&shared.count, total);
        }
        // A lane cannot index its registers at run time: its own scores go through its own shared memory.
#pragma unroll
        for (int q = 0; q < kLaneQuads; ++q) {
            shared.staged[q][at.thread] = c.v[q];
        }
        place = __shfl_sync(ptx::kFullMask, place, 0);
        if (place + total > kList) {
            if (at.lane == 0) {
                atomicMin(&shared.stored, place);
            }
            return;
        }
        const float* staged = reinterpret_cast<const float*>(&shared.staged[0][at.thread]);
        const u32 where = first | at.lane << 5;
        for (uint2* to = shared.list + place + upto - own; marks; ++to) {
            const u32 i = __clz(marks);
            marks ^= 0x80000000u >> i;
            *to = make_uint2(__float_as_uint(staged[i / 4 * (S::Threads * 4) + i % 4]), where | i);
        }
    }

    // Streams a warp's run past the threshold; `c` is the chunk at run.first already loaded.
    __device__ __forceinline__ void stream(const Row& w, Run run, Chunk& c, float threshold) {
        for (i32 i = run.first; i < run.last;) {
            admit(i, c, threshold);
            i += kChunk;
            if (i < run.last) {
                load(w, i, c);
            }
        }
    }

    // This thread's candidates, 0 past the end of the list.
    __device__ __forceinline__ void read_list(const Row& w, u32 count, u64 (&own)[S::ListSteps]) const {
#pragma unroll
        for (int s = 0; s < S::ListSteps; ++s) {
            const u32 i = s * S::Threads + at.thread;
            own[s] = 0;
            if (i < count) {
                const uint2 entry = shared.list[i];
                const u32 lane = entry.y >> 5 & 31, element = entry.y & 31;
                const u32 position = (entry.y & ~1023u) + (element / 4 * 128 + lane * 4 + element % 4) - w.head;
                own[s] = candidate(key_of(__uint_as_float(entry.x)), position);
            }
        }
    }

    // The range of the keys in a list, over the block.
    __device__ __forceinline__ KeyRange list_range(const u64 (&own)[S::ListSteps]) {
        KeyRange range{~0u, 0};
#pragma unroll
        for (int s = 0; s < S::ListSteps; ++s) {
            if (own[s] != 0) {
                range.low = min(range.low, candidate_key(own[s]));
                range.high = max(range.high, candidate_key(own[s]));
            }
        }
        block_range(shared, at, range.low, range.high);
        return range;
    }

    __device__ __forceinline__ void reset_count() {
        __syncthreads();
        if (at.thread == 0) {
            clear_count();
        }
        __syncthreads();
    }

    __device__ __forceinline__ void clear_count() {
        shared.count = 0;
        shared.stored = kList;
    }

    // Puts the candidates >= cut back into an empty list.
    __device__ __forceinline__ void keep(const Row& w, const u64 (&own)[S::ListSteps], u64 cut) {
#pragma unroll
        for (int s = 0; s < S::ListSteps; ++s) {
            if (own[s] >= cut) {
                const u32 i = candidate_position(own[s]) + w.head;
                const u32 place = (i & ~(kChunk - 1u)) | (i / 4 % 32) << 5 | (i / 128 % kLaneQuads) << 2 | i % 4;
                shared.list[atomicAdd(&shared.count, 1u)] = make_uint2(__float_as_uint(score_of(candidate_key(own[s]))), place);
            }
        }
    }

    // ---- output -------------------------------------------------------------------------------------------------------------

    __device__ __forceinline__ i32 transformed(i32 r, i32 position) const {
        switch (args.transform) {
        case kTopKPaged: {
            const i32* table = args.page_table + r / args.rows_per_request * args.table_stride;
            const i32 low = position & ((1 << args.page_shift) - 1);
            return table[position >> args.page_shift] << args.page_shift | low;
        }
        case kTopKRagged:
            return position + args.offsets[r];
        default:
            return position;
        }
    }

    __device__ __forceinline__ void finish_row(i32 r, u32 written) const {
        i32* out = args.out + static_cast<i64>(r) * args.k;
        for (u32 i = written + at.thread; i < static_cast<u32>(args.k); i += S::Threads) {
            out[i] = -1;
        }
        if (args.counts && at.thread == 0) {
            args.counts[r] = written;
        }
    }

    // A row with at most k candidates.
    __device__ __forceinline__ void write_all(i32 r, const Row& w) const {
        i32* out = args.out + static_cast<i64>(r) * args.k;
        for (i32 i = at.thread; i < w.length; i += S::Threads) {
            out[i] = transformed(r, i);
        }
        finish_row(r, w.length);
    }

    // Writes the positions of all candidates >= cut in ascending order, one segment of the row at a time.
    __device__ __forceinline__ void write_ordered(i32 r, const Row& w, const u64 (&own)[S::ListSteps], u32 count, u64 cut) {
        i32* out = args.out + static_cast<i64>(r) * args.k;
        u32 written = 0;
        for (u32 segment = 0; segment < static_cast<u32>(w.length); segment += kSegment) {
#pragma unroll
            for (int s = 0; s < S::ListSteps; ++s) {
                const u32 position = candidate_position(own[s]) - segment;
                if (s * S::Threads < count && own[s] >= cut && position < kSegment) {
                    atomicOr(&shared.bitmap[position / 32], 1u << position % 32);
                }
            }
            __syncthreads();
            u32 words[S::Words], bits = 0;
#pragma unroll
            for (int i = 0; i < S::Words; ++i) {
                words[i] = shared.bitmap[at.thread * S::Words + i];
                shared.bitmap[at.thread * S::Words + i] = 0;
                bits += __popc(words[i]);
            }
            const u32 upto = ptx::warp_prefix(bits, at.lane);
            u32 total;
            i32* to = out + written + upto - bits;
            to += block_prefix(shared, at, __shfl_sync(ptx::kFullMask, upto, 31), next_use(), total);
#pragma unroll
            for (int i = 0; i < S::Words; ++i) {
                const u32 base = segment + (at.thread * S::Words + i) * 32;
                for (u32 left = __brev(words[i]); left; ++to) {
                    const u32 bit = __clz(left);
                    left ^= 0x80000000u >> bit;
                    *to = transformed(r, base + bit);
                }
            }
            written += total;
        }
        finish_row(r, written);
    }

    // ---- rows ---------------------------------------------------------------------------------------------------------------

    __device__ __forceinline__ void select_row(i32 r, const Row& w) {
        const u32 k = args.k;
        i32 first = 0, last = w.end();  // scores of this pass: the whole row, or a window
        int passes = 0;
        Run run = run_of_warp(first, last);
        Chunk c;
        load(w, run.first, c);
        if (at.thread == 0) {
            clear_count();
        }
        float threshold = minus_inf();
        KeyRange range;
        bool ranged = w.length > kList;
        if (ranged) {
            threshold = estimate(w, c, range);
        } else {
            __syncthreads();
        }
        for (;;) {
            stream(w, run, c, threshold);
            __syncthreads();
            const u32 count = shared.count;
            const bool overflow = count > kList;
            const bool starved = count < k && passes < kTries && threshold > minus_inf();
            const u32 stored = overflow ? shared.stored : count;  // after an overflow more than kList - kChunk
            u64 own[S::ListSteps], cut = 1;
            read_list(w, stored, own);
            if (stored > k && !starved) {
                if (overflow || !ranged) {
                    range = list_range(own);
                }
                cut = find_cut(shared, at, own, stored, k, range);
            }
            if (!overflow && !starved && last == w.end()) {
                write_ordered(r, w, own, stored, cut);
                return;
            }
            reset_count();
            ranged = false;
            ++passes;
            if (starved) {
                threshold = minus_inf();
            } else if (overflow) {  // the stored scores are some of the row's: their k-th largest is a lower bound
                threshold = fmaxf(threshold, score_of(just_below(candidate_key(cut))));
                last = passes < kTries ? w.end() : min(kWindow, w.end());
            } else {  // between windows
                keep(w, own, cut);
                threshold = cut > 1 ? score_of(candidate_key(cut)) : threshold;
                first = last;
                last = min(first + kWindow, w.end());
            }
            run = run_of_warp(first, last);
            load(w, run.first, c);
            __syncthreads();
        }
    }

    __device__ void run() {
        for (u32 i = at.thread; i < kSegment / 32; i += S::Threads) {
            shared.bitmap[i] = 0;
        }
        for (i32 r = blockIdx.x; r < args.rows; r += gridDim.x) {
            const Row w = row(r);
            if (w.length <= args.k) {
                write_all(r, w);
            } else {
                select_row(r, w);
            }
            __syncthreads();
        }
    }
};

template <class S>
__device__ __forceinline__ void topk_rows(const TopKArgs& args) {
    extern __shared__ __align__(16) u8 dynamic_shared[];
    ptx::wait_for_previous_kernel();
    TopK<S>(args, *reinterpret_cast<Storage<S>*>(dynamic_shared)).run();
}

}  // namespace sparrow_topk
