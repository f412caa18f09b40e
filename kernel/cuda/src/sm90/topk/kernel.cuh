// Exact and deterministic top-k selection of every row of a score matrix. Positions are in ascending order, and the
// lowest position wins a tie. NaN and -inf are never selected. A row with at most k candidates returns all of their
// positions without reading its scores.
//
// In:    scores f32 [rows, stride], lengths i32 [rows], optionally the column of position 0 of each row (args.h).
// Out:   i32 [rows, k], positions or their paged or ragged transform, padded with -1.
// Block: one row at a time; rows are assigned round robin over the grid, which may have any size.
// How:   1. Evenly spaced scores of the row form a sample. It gives a threshold that k scores exceed with a margin of
//           4.5 standard deviations.
//        2. The row streams through registers, and every score above the threshold is added to a list of at most 3840
//           candidates.
//        3. The list is cut to its k largest by a histogram over the range of the candidates.
//        4. Winners set bits in a bitmap over positions, which is read out in order.
//        If the list overflows, the k-th largest of its entries is a better threshold, and the row is read again. If
//        too few scores pass, the row is read again from -inf. If ties make both fail, the row is read in windows
//        that fit, and the list is cut to k whenever it is full: a later score equal to the smallest kept score loses
//        its tie by position. The threshold affects only speed, never the result.
// Bytes: each score is read once from global memory (the sample once more, mostly from L2), and k indices are
//        written.
// H200:  4096 rows x 32k, k 2048: 206 us, 61 % of one read at 4.3 TB/s; 64 rows x 32k: 11.2 us; one row of a million:
//        113 us. Rows whose k-th largest score occurs thousands of times are slower: they are read several times.
#pragma once

#include "ptx/copy.cuh"
#include "sm90/topk/row.cuh"
#include "sm90/topk/select.cuh"

namespace sparrow_topk {

// Shared memory of a block.
template <class S>
struct Storage {
    using Shape = S;

    float4 staged[kStagedQuads][S::Threads];  // part of each thread's current scores
    float values[kList];                    // [kList] scores of the candidates
    u32 positions[kList];                   // [kList] positions of the candidates in the row
    u32 bins[S::Bins];
    u32 bitmap[kSegmentWords];              // winners by position; all zero between uses
    u64 small_bin[kSmallBin];
    u32 warp_low[S::Warps], warp_high[S::Warps];
    u32 bin_sums[S::Warps];
    u32 warp_counts[2][S::Warps];           // two sets that alternate, so that one barrier per use is enough
    u32 count;  // number of scores above the threshold, including those that did not fit in the list
    u32 stored;                             // number of filled list entries after an overflow
    u32 small_count;
    BinRank found;                          // result of the first warp for the block
    u64 cut;                                // smallest selected candidate, found by the first warp for the block
};

// The scores of a warp's chunk: quad q of lane l holds the four scores from first + q*128 + l*4.
struct Chunk {
    float4 v[kLaneQuads];
};

// The range of scores that a warp reads, [first, last).
struct Run {
    i32 first, last;
};

template <class S>
struct TopK {
    const TopKArgs& args;
    Storage<S>& shared;
    const Place at;
    u32 prefix_use = 0;

    __device__ __forceinline__ TopK(const TopKArgs& a, Storage<S>& s)
        : args(a), shared(s), at{threadIdx.x, threadIdx.x % 32, threadIdx.x / 32} {}

    // ---- from scores to candidates
    // --------------------------------------------------------------------------------------

    // Loads a chunk from position `first` on. Scores outside the row are set to -inf.
    __device__ __forceinline__ void load(const Row& w, i32 first, Chunk& c) const {
        const float* from = w.scores + first + at.lane * 4;
        if (first >= w.head && first + kChunk <= w.end()) {
#pragma unroll
            for (int q = 0; q < kLaneQuads; ++q) {
                c.v[q] = ptx::load_once(from + q * 128);
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

    __device__ __forceinline__ Run run_of_warp(i32 first, i32 last) const {
        const i32 chunks = (last - first + kChunk - 1) / kChunk;
        const i32 length = (chunks + S::Warps - 1) / S::Warps * kChunk;
        const i32 from = min(first + static_cast<i32>(at.warp) * length, last);
        return Run{from, min(from + length, last)};
    }

    // Adds the scores of a chunk that exceed the threshold to the list. Scores that do not fit are counted but not
    // stored.
    __device__ __forceinline__ void admit(const Row& w, i32 first, const Chunk& c, float threshold) {
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
        u32 to = 0;
        if (at.lane == 0) {
            to = atomicAdd(&shared.count, total);
        }
        to = __shfl_sync(ptx::kFullMask, to, 0);
        if (to + total > kList) {
            if (at.lane == 0) {
                atomicMin(&shared.stored, to);
            }
            return;
        }
        to += upto - own;
        // A lane cannot index its registers at run time, so it passes its scores through shared memory, half a chunk at
        // a time. The buffer is small, because shared memory reduces the L1 cache and with it the number of loads in
        // flight.
        const float* staged = reinterpret_cast<const float*>(&shared.staged[0][at.thread]);
        u32 position = first - w.head + at.lane * 4;
#pragma unroll
        for (int half = 0; half < kLaneQuads / kStagedQuads; ++half) {
#pragma unroll
            for (int q = 0; q < kStagedQuads; ++q) {
                shared.staged[q][at.thread] = c.v[half * kStagedQuads + q];
            }
            for (u32 left = marks & 0xFFFF0000u; left; ++to) {
                const u32 i = __clz(left), rest = i % 4;
                left ^= 0x80000000u >> i;
                shared.values[to] = staged[i / 4 * (S::Threads * 4) + rest];
                shared.positions[to] = position + i * 32 - rest * 31;
            }
            marks <<= 16;
            position += kStagedQuads * 128;
        }
    }

    // Prefetches a chunk of a row into L2.
    __device__ __forceinline__ void prefetch(const Row& w, i32 first, i32 last) const {
        if (at.lane == 0 && first < last) {
            ptx::prefetch_bytes(w.scores + first, ((min(first + kChunk, w.end()) - first + 3) & ~3) * sizeof(float));
        }
    }

    // Compares a warp's range of scores with the threshold; the next chunk is prefetched into L2. `c` is the first
    // chunk, already loaded.
    __device__ __forceinline__ void stream(const Row& w, Run run, Chunk& c, float threshold) {
        for (i32 i = run.first; i < run.last;) {
            prefetch(w, i + kChunk, run.last);
            admit(w, i, c, threshold);
            i += kChunk;
            if (i < run.last) {
                load(w, i, c);
            }
        }
    }

    // Prefetches into L2 the first scores that this warp reads of a later row.
    __device__ __forceinline__ void prefetch_run(const Row& w) const {
        if (w.length > args.k) {
            const Run run = run_of_warp(0, w.end());
            prefetch(w, run.first, run.last);
        }
    }

    // ---- the threshold
    // --------------------------------------------------------------------------------------------------

    struct Sample {
        float4 v[S::SampleQuads];
    };

    // Returns the number of sample rounds (log2). Longer rows have more, so that at least about 64 sampled scores are
    // above the cut.
    __device__ __forceinline__ u32 sample_rounds_log2(const Row& w) const {
        const u32 wanted = static_cast<u32>(w.length) >> 16;
        return wanted ? 32 - __clz(wanted) : 0;
    }

    // Loads evenly spaced groups of one or two quads. The first quad of a row is not used, because it may contain
    // scores of another row.
    __device__ __forceinline__ void load_sample(const Row& w, u32 round, Sample& sample) const {
        const float4* scores = reinterpret_cast<const float4*>(w.scores) + 1;
        const u64 groups = (w.end() / 4 - 1) / S::SampleQuads;
        const u32 shift = sample_rounds_log2(w) + kSampleLog2 - 2 - (S::SampleQuads == 2);
        const u64 group = (round * S::Threads + at.thread) * groups >> shift;
#pragma unroll
        for (int q = 0; q < S::SampleQuads; ++q) {
            sample.v[q] = scores[group * S::SampleQuads + q];
        }
    }

    // Returns a threshold that, according to the sample, somewhat more than k scores of the row exceed. Sets `range` to
    // the keys from the threshold to the maximum of the sample.
    __device__ __forceinline__ float estimate(const Row& w, Sample& sample, KeyRange& range) {
        u32 low = ~0u, high = 0;
        auto each = [](const Sample& s, const auto& visit) {
#pragma unroll
            for (int q = 0; q < S::SampleQuads; ++q) {
                visit(s.v[q].x), visit(s.v[q].y), visit(s.v[q].z), visit(s.v[q].w);
            }
        };
        each(sample, [&](float x) {
            if (x > minus_inf()) {
                low = min(low, key_of(x));
                high = max(high, key_of(x));
            }
        });
        key_range(shared, at, low, high);
        range = KeyRange{low, high};
        if (low >= high) {
            range = KeyRange{kKeyMinusInf, kKeyMaxFinite};
            return minus_inf();  // the sample has no two different numbers
        }
        const u32 rounds = 1u << sample_rounds_log2(w), seen = rounds << kSampleLog2;
        const float expected = static_cast<float>(args.k) * seen / w.length;
        const u32 rank = static_cast<u32>(expected + 4.5f * sqrtf(expected)) + 4;
        // The bins cover the largest sixteen binary orders of magnitude, so that they are narrow where the k-th largest
        // score usually is. If it is smaller, the bins then cover the remaining keys.
        KeyRange bins{high - low > kOctaves ? high - kOctaves : low, high};
        for (;;) {
            const u32 shift = bins.template shift<S>();
            clear_bins(shared, at);
            __syncthreads();
            for (u32 round = 0;;) {
                each(sample, [&](float x) {
                    if (x > minus_inf()) {
                        atomicAdd(&shared.bins[bins.offset(key_of(x)) >> shift], 1u);
                    }
                });
                if (++round == rounds) {
                    break;
                }
                load_sample(w, round, sample);
            }
            __syncthreads();
            const BinRank found = find_bin(shared, at, rank);
            if (found.inside == 0) {
                return minus_inf();  // too few numbers in the sample
            }
            u32 key = bins.low + (found.bin << shift);
            if (found.bin == 0 && bins.low > low) {
                bins = KeyRange{low, bins.low};
                load_sample(w, 0, sample);
                continue;
            }
            // Interpolates inside a bin with few scores. A bin with many scores is included completely, because they
            // may all be the same value.
            if (found.inside * 16 <= seen) {
                key += static_cast<u32>((static_cast<float>(found.inside - (rank - found.above)) / found.inside) *
                    (1u << shift));
            }
            range.low = just_below(min(key, kKeyMaxFinite));
            return score_of(range.low);
        }
    }

    // ---- after a pass
    // ---------------------------------------------------------------------------------------------------

    // One pass over scores [first, last) of a row: the whole row, or a window of it.
    struct Pass {
        i32 first, last;
        float threshold;
        int number;
    };

    // Cuts the list after a pass. Returns true if it has written the row. Returns false after setting up another
    // pass, because there were too many or too few candidates or because more windows follow.
    __device__ __forceinline__ bool settle(i32 r, const Row& w, Pass& pass, KeyRange range, bool ranged) {
        const u32 k = args.k, count = shared.count;
        const bool overflow = count > kList;
        const bool starved = count < k && pass.number < kTries && pass.threshold > minus_inf();
        const u32 stored = overflow ? shared.stored : count;  // more than kList - kChunk after an overflow
        u32 own[S::ListSteps];  // keys of this thread's entries, 0 past the end of the list
#pragma unroll
        for (int s = 0; s < S::ListSteps; ++s) {
            const u32 i = s * S::Threads + at.thread;
            own[s] = i < stored ? key_of(shared.values[i]) : 0;
        }
        u64 cut = 1ull << 32;
        if (stored > k && !starved) {
            if (overflow || !ranged) {
                range = KeyRange{~0u, 0};
#pragma unroll
                for (int s = 0; s < S::ListSteps; ++s) {
                    range.low = own[s] ? min(range.low, own[s]) : range.low;
                    range.high = max(range.high, own[s]);
                }
                key_range(shared, at, range.low, range.high);
            }
            cut = find_cut(shared, at, own, stored, k, range);
        }
        // After this loop, own[s] is the position of a selected entry, or ~0 for an entry that is not selected.
        const u32 cut_key = candidate_key(cut), cut_low = static_cast<u32>(cut);
#pragma unroll
        for (int s = 0; s < S::ListSteps; ++s) {
            const u32 key = own[s];
            own[s] = ~0u;
            if (s * S::Threads < stored && key >= cut_key) {
                const u32 position = shared.positions[s * S::Threads + at.thread];
                own[s] = key > cut_key || ~position >= cut_low ? position : ~0u;
            }
        }
        if (!overflow && !starved && pass.last == w.end()) {
            write_ordered(r, w, stored, own);
            return true;
        }
        // Sets up another pass. Between windows, the winners are kept.
        __syncthreads();  // all threads have read the count and the list
        if (at.thread == 0) {
            clear_count();
        }
        __syncthreads();
        ++pass.number;
        if (starved) {
            pass.threshold = minus_inf();
        } else if (overflow) {  // the k-th largest of the stored scores is a lower bound of the k-th largest of the row
            pass.threshold = fmaxf(pass.threshold, score_of(just_below(cut_key)));
            pass.last = pass.number < kTries ? w.end() : min(kWindow, w.end());
        } else {
            pass.threshold = stored > k ? score_of(cut_key) : pass.threshold;
            pass.first = pass.last;
            pass.last = min(pass.last + kWindow, w.end());
#pragma unroll
            for (int s = 0; s < S::ListSteps; ++s) {
                if (own[s] != ~0u) {
                    const u32 to = atomicAdd(&shared.count, 1u);
                    shared.values[to] = w.scores[w.head + own[s]];
                    shared.positions[to] = own[s];
                }
            }
        }
        return false;
    }

    __device__ __forceinline__ void clear_count() {
        shared.count = 0;
        shared.stored = kList;
    }

    // ---- output
    // ---------------------------------------------------------------------------------------------------------

    // Writes the positions of the winners in ascending order, one segment of the row at a time. The rank of a
    // position is the number of set bits before it in the bitmap.
    __device__ __forceinline__ void write_ordered(i32 r, const Row& w, u32 stored, const u32 (&own)[S::ListSteps]) {
        i32* out = args.out + static_cast<i64>(r) * args.k;
        u32* word_ranks = shared.bins;  // number of winners before each word
        u32 written = 0;
        for (u32 segment = 0; segment < static_cast<u32>(w.length); segment += kSegment) {
#pragma unroll
            for (int s = 0; s < S::ListSteps; ++s) {
                const u32 position = own[s] - segment;
                if (s * S::Threads < stored && position < kSegment) {
                    atomicOr(&shared.bitmap[position / 32], 1u << position % 32);
                }
            }
            __syncthreads();
            const u32 first_word = at.thread * S::Words;
            u32 bits[S::Words], sum = 0;
#pragma unroll
            for (int i = 0; i < S::Words; ++i) {
                bits[i] = __popc(shared.bitmap[first_word + i]);
                sum += bits[i];
            }
            const u32 upto = ptx::warp_prefix(sum, at.lane);
            u32 total;
            u32 rank = warps_prefix(shared, at, __shfl_sync(ptx::kFullMask, upto, 31), prefix_use ^= 1, total) +
                written + upto - sum;
#pragma unroll
            for (int i = 0; i < S::Words; ++i) {
                word_ranks[first_word + i] = rank;
                rank += bits[i];
            }
            __syncthreads();
#pragma unroll
            for (int s = 0; s < S::ListSteps; ++s) {
                const u32 position = own[s] - segment, word = position / 32;
                if (s * S::Threads < stored && position < kSegment) {
                    const u32 before = shared.bitmap[word] & ((1u << position % 32) - 1);
                    out[word_ranks[word] + __popc(before)] = transformed(args, w, own[s]);
                }
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < S::Words; ++i) {
                shared.bitmap[first_word + i] = 0;
            }
            written += total;
            if (segment + kSegment < static_cast<u32>(w.length)) {
                __syncthreads();  // the bitmap is cleared before winners of the next segment set bits
            }
        }
        finish_row<S::Threads>(args, r, written);
    }

    // ---- rows
    // -----------------------------------------------------------------------------------------------------------

    __device__ __forceinline__ void select_row(i32 r, const Row& w, i32 next) {
        const bool sampled = w.length > kList;
        Run run = run_of_warp(0, w.end());
        Sample sample;
        if (sampled) {
            load_sample(w, 0, sample);
        }
        Chunk c;
        load(w, run.first, c);
        if (at.thread == 0) {
            clear_count();
        }
        Pass pass{0, w.end(), minus_inf(), 0};
        KeyRange range;
        if (sampled) {
            pass.threshold = estimate(w, sample, range);
        }
        for (;;) {
            __syncthreads();
            stream(w, run, c, pass.threshold);
            if (pass.number == 0 && next < args.rows) {
                prefetch_run(row_of(args, next));
            }
            __syncthreads();
            if (settle(r, w, pass, range, sampled && pass.number == 0)) {
                return;
            }
            run = run_of_warp(pass.first, pass.last);
            load(w, run.first, c);
        }
    }

    // Reports whether no row of this thread block is marked. All rows of the thread block are checked at once.
    __device__ __forceinline__ bool nothing_marked() const {
        bool any = false;
        for (i64 r = blockIdx.x + static_cast<i64>(at.thread) * gridDim.x; r < args.rows;
            r += static_cast<i64>(S::Threads) * gridDim.x) {
            any |= args.out[r * args.k] == kMarkedRow;
        }
        return !__syncthreads_or(any);
    }

    __device__ void run() {
        for (u32 i = at.thread; i < kSegmentWords; i += S::Threads) {
            shared.bitmap[i] = 0;
        }
        if (args.marked && nothing_marked()) {
            return;
        }
        for (i32 r = blockIdx.x; r < args.rows; r += gridDim.x) {
            if (args.marked && args.out[static_cast<i64>(r) * args.k] != kMarkedRow) {
                continue;
            }
            const Row w = row_of(args, r);
            if (!w.whole) {
                select_row(r, w, r + static_cast<i32>(gridDim.x));
            } else {
                write_whole<S::Threads>(args, r, w);
            }
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
