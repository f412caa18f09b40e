// Top-k of many rows. Several small blocks run per SM, each with a row that streams through it, so that the work on
// one row hides the latency of another. The contract is that of kernel.cuh, for rows of up to Places scores,
// including the leading scores of other rows.
//
// In:    scores f32 [rows, stride], lengths i32 [rows], optionally starts (args.h); no parts.
// Out:   i32 [rows, k], positions or their transform, padded with -1. A row that could not be selected begins with
//        kMarkedRow instead; the kernels of kernel.cuh select those rows.
// Block: 256 threads in pairs of warps, and a copy warp; rows are assigned round robin over the grid, which may have
//        any size.
// How:   1. Four pieces of 2048 scores, spread over the row, are copied first and form the sample. Bins give an
//           interval that contains the k-th largest with a margin of five standard deviations on either side.
//        2. Every pair of warps takes pieces as they arrive, without a barrier. Scores above the interval set bits of
//           a bitmap over positions; scores inside are added to a list. If the interval is a single value, they set
//           bits of a second bitmap.
//        3. The list is cut exactly by bins, or the first of the equal scores are taken.
//        4. The bitmap is ranked and written in order.
//        Rows with a wrong interval or too long a list are left to the other kernels: less than one in a million if
//        scores are independent.
// Bytes: each score is read once from global memory; k indices are written.
// H200:  4096 rows x 32k, k 2048, paged: 164 to 168 us, 80 % of one read at 4.3 TB/s; 4096 x 128k: 85 %.
#pragma once

#include "sm90/topk/interval.cuh"
#include "sm90/topk/ring.cuh"

namespace sparrow_topk {

constexpr int kSampleCopies = 4;  // one copy per pair of warps

template <int PlacesV, int ListV, int SlotsV>
struct SweptShape {
    static constexpr int Threads = 256;
    static constexpr int Warps = Threads / 32;
    static constexpr int Bins = 4 * Threads;
    static constexpr int BinBits = 10;
    static constexpr int Places = PlacesV;
    static constexpr int List = ListV;
    static constexpr int ListSteps = List / Threads;
    static constexpr int Slots = SlotsV;
    static_assert(Slots > kSampleCopies && Warps == 2 * kSampleCopies, "the sample stays while more arrives");
    static_assert(Places / 32 <= 2 * List && List >= kMaxK,
        "the bitmap of equal scores and the output lie over the list");
};

template <class S>
struct SweptStorage {
    using Shape = S;

    RingStorage<S::Slots> ring;
    u32 bins[S::Bins];              // cleared between rows
    float values[S::List];          // scores of the list; later the output of the row
    // [List] positions of the list entries, counting leading scores of other rows. Together with values, the memory
    // also serves as a bitmap of equal scores.
    u32 positions[S::List];
    u32 bitmap[S::Places / 32];     // bitmap of the winners
    u64 small_bin[kSmallBin];
    u32 bin_sums[S::Warps];
    u32 warp_low[S::Warps], warp_high[S::Warps];
    u32 warp_counts[2][S::Warps];   // two sets that alternate, so that one barrier per use is enough
    u32 above, count;               // number of scores above the interval and inside it; zero between rows
    u32 small_count;
    BinRank found;
    BinRank guess[2];
    Interval interval;
    u64 cut;
};

// Source of the ring: rows whose sample copies come first and are spread over the row.
template <class S>
struct SweptSource {
    const TopKArgs& args;

    __device__ __forceinline__ i32 count() const { return args.rows; }

    // Scores beyond the capacity are ignored; the launcher does not pass such rows.
    __device__ __forceinline__ Row row(i32 v) const {
        if (v >= args.rows) {
            return Row{nullptr, 0, 0, 0, 0, true};
        }
        Row w = row_of(args, v);
        w.length = min(w.length, S::Places - w.head);
        return w;
    }

    __device__ __forceinline__ i32 copies(const Row& w) const { return w.whole ? 0
        : (w.end() + kSlotScores - 1) / kSlotScores; }

    // The order of copies: every gap-th copy first, until there are enough for the sample, then the others in order.
    // One thread issues all copies, so the code must be short and has no divisions.
    struct Order {
        const i32 gap;
        i32 sampled = 0, at = 0;
        i32 skip = -1;  // number of the next copy that is part of the sample; -1: none

        __device__ __forceinline__ explicit Order(i32 copies) : gap(max(copies / kSampleCopies, 1)) {}

        __device__ __forceinline__ i32 next() {
            const i32 place = at;
            if (sampled < kSampleCopies) {
                at += gap;
                if (++sampled == kSampleCopies && gap > 1) {
                    at = 1;
                    skip = gap;
                }
            } else if (++at == skip) {
                ++at;
                skip += gap;
                if (skip == kSampleCopies * gap) {
                    skip = -1;
                }
            }
            return place;
        }
    };
};

template <class S>
struct Swept {
    const TopKArgs& args;
    SweptStorage<S>& shared;
    const Place at;
    const SweptSource<S> source;
    Ring<S::Slots, 64, SweptSource<S>> ring;
    u32 prefix_use = 0;

    __device__ __forceinline__ Swept(const TopKArgs& a, SweptStorage<S>& s)
        : args(a), shared(s), at{threadIdx.x, threadIdx.x % 32, threadIdx.x / 32}, source{a}, ring(s.ring, source) {}

    __device__ __forceinline__ static void sync() { ptx::threads_sync<S::Threads>(); }

    // Returns the index of this thread's word in a copy.
    __device__ __forceinline__ u32 own_word() const { return at.warp % 2 * 32 + at.lane; }

    // ---- the interval
    // ---------------------------------------------------------------------------------------------------

    // Estimates the interval. The bins must be zero before the call and are not cleared afterwards.
    __device__ __forceinline__ Interval guess(const Row& w, u32 copies) {
        // The range of the bins is estimated from a copy without scores of other rows: if the row is long enough, the
        // copy that begins a quarter into the row.
        const float* middle = ring.copy(w.end() >= 2 * kSlotScores ? 1 : 0);
        const auto bins = place_bins<S::Bins>(reinterpret_cast<const float4*>(middle)[96 + at.lane]);
        const u32 pair = at.warp / 2;
        if (bins.placed() && pair < copies) {
            const float* scores = ring.copy(pair) + own_word() * 32;
            const u32 bits = valid_places(w, ring.place(pair) * kSlotWords + own_word());
            if (bits == ~0u) {
#pragma unroll
                for (u32 q = 0; q < 8; ++q) {
                    visit(reinterpret_cast<const float4*>(scores)[(q + at.lane) % 8],
                        [&](float x) { atomicAdd(&shared.bins[bins.of(x)], 1u); });
                }
            } else {
                for (u32 left = bits; left; left &= left - 1) {
                    atomicAdd(&shared.bins[bins.of(scores[__ffs(left) - 1])], 1u);
                }
            }
        }
        const Estimate estimate(args.k,
            copies > kSampleCopies ? w.length / static_cast<float>(kSampleCopies * kSlotScores) : 1.0f, 2.0f);
        sync();
        sum_bins(shared, at);
        sync();
        if (at.warp < 2) {
            search_bins(shared, at, at.warp == 0 ? estimate.last() : estimate.best(), shared.guess[at.warp]);
        }
        sync();
        if (at.warp == 0) {  // only one warp, so that it does not take issue slots from other blocks
            const Interval v = interval_between(bins, shared.guess[0], shared.guess[1], estimate, S::List);
            if (at.lane == 0) {
                shared.interval = v;
            }
        }
        sync();
        return shared.interval;
    }

    // ---- the stream
    // -----------------------------------------------------------------------------------------------------

    // Adds the scores inside the interval to the list. Scores that do not fit are counted but not stored. Each lane
    // reserves its entries itself, because a prefix sum over the warp would take longer: it is a chain of shuffles.
    __device__ __forceinline__ void append(u32 inside, const float* scores, u32 word) {
        const u32 own = __popc(inside);
        if (own == 0) {
            return;
        }
        u32 to = atomicAdd(&shared.count, own);
        if (to + own > S::List) {
            return;
        }
        for (u32 left = inside; left; left &= left - 1, ++to) {
            const u32 i = __ffs(left) - 1;
            shared.values[to] = scores[i];
            shared.positions[to] = word * 32 + i;
        }
    }

    __device__ __forceinline__ void stream(const Row& w, u32 copies, const Interval& interval) {
        const bool tied = interval.low == interval.high;
        u32* ties = reinterpret_cast<u32*>(shared.values);
        u32 above = 0, equal = 0;
        for (u32 i = at.warp / 2; i < copies; i += kSampleCopies) {
            const float* scores = ring.copy(i) + own_word() * 32;
            const u32 word = ring.place(i) * kSlotWords + own_word(), bits = valid_places(w, word);
            u32 won, inside;
            scan_word(scores, at.lane, interval, won, inside);
            won &= bits;
            inside &= bits;
            above += __popc(won);
            shared.bitmap[word] = won;
            if (tied) {
                ties[word] = inside;
                equal += __popc(inside);
            } else {
                append(inside, scores, word);
            }
            ring.give_back(i);
        }
        const u32 sums[2] = {ptx::warp_sum(above), ptx::warp_sum(equal)};
        if (at.lane == 0) {
            atomicAdd(&shared.above, sums[0]);
            atomicAdd(&shared.count, sums[1]);
        }
    }

    // ---- a row
    // ----------------------------------------------------------------------------------------------------------

    __device__ __forceinline__ void select_row(i32 v, const Row& w) {
        const u32 k = args.k, copies = source.copies(w);
        Interval interval{kLowestKey, kKeyInf, false};
        const bool sampled = w.length > S::List;
        if (sampled) {
            interval = guess(w, copies);
        } else {
            sync();  // all threads have read the output of the previous row from the memory of the list
        }
        stream(w, copies, interval);
        ring.next_row(copies);
        sync();
        const u32 above = shared.above, count = above == k ? 0 : shared.count;
        const bool tied = interval.low == interval.high;
        const bool selected = above <= k && (above + count >= k || interval.low <= kLowestKey) &&
            (tied || count <= S::List);
        if (!selected) {
            if (at.thread == 0) {
                args.out[static_cast<i64>(v) * k] = kMarkedRow;
            }
            sync();
            end_row();
            sync();
            return;
        }
        // This thread has words [first, last) of the bitmap.
        const u32 words = (copies * kSlotWords + S::Threads - 1) / S::Threads, first = at.thread * words;
        const u32 last = min(first + words, copies * kSlotWords);
        if (tied) {
            take_first(first, last, above == k ? 0 : k - above);
        } else if (count > 0) {
            u32 keys[S::ListSteps];
            u64 cut = 0;
            if (above + count > k) {
                cut = cut_list(shared, at, keys, count, k - above, sampled, KeyRange{interval.low, interval.high});
            } else {
#pragma unroll
                for (int s = 0; s < S::ListSteps; ++s) {
                    keys[s] = s * S::Threads + at.thread < count;
                }
            }
            each_winner(shared, at, keys, count, cut,
                [&](u32 place) { atomicOr(&shared.bitmap[place / 32], 1u << place % 32); });
            sync();
        }
        write_row(v, w, first, last);
    }

    // Adds the first `wanted` equal scores of words [first, last) to the winners.
    __device__ __forceinline__ void take_first(u32 first, u32 last, u32 wanted) {
        const u32* ties = reinterpret_cast<const u32*>(shared.values);
        u32 before = rank_before(ties, first, last);
        for (u32 word = first; word < last; ++word) {
            const u32 bits = ties[word];
            shared.bitmap[word] |= first_bits(bits, before, wanted);
            before += __popc(bits);
        }
        sync();
    }

    // Returns the number of set bits before words [first, last) of this thread.
    __device__ __forceinline__ u32 rank_before(const u32* words, u32 first, u32 last) {
        u32 own = 0, total;
        for (u32 word = first; word < last; ++word) {
            own += __popc(words[word]);
        }
        const u32 upto = ptx::warp_prefix(own, at.lane);
        const u32 before = warps_prefix(shared, at, __shfl_sync(ptx::kFullMask, upto, 31), prefix_use ^= 1, total) +
            upto - own;
        written = total;
        return before;
    }
    u32 written = 0;  // number of set bits of the last bitmap that was ranked

    __device__ __forceinline__ void end_row() {
        clear_bins(shared, at);
        if (at.thread == 0) {
            shared.above = 0;
            shared.count = 0;
        }
    }

    // Writes the winners in ascending order.
    __device__ __forceinline__ void write_row(i32 v, const Row& w, u32 first, u32 last) {
        i32* staged = reinterpret_cast<i32*>(shared.values);
        u32 rank = rank_before(shared.bitmap, first, last);
        const bool paged = words_in_pages(args, w);
        const i32* table = paged ? table_of(args, w) : nullptr;
        constexpr u32 kAtOnce = 4;
        for (u32 word = first; word < last; word += kAtOnce) {
            u32 bits[kAtOnce];
            i32 pages[kAtOnce];
#pragma unroll
            for (u32 j = 0; j < kAtOnce; ++j) {
                bits[j] = word + j < last ? shared.bitmap[word + j] : 0;
                pages[j] = paged && bits[j] ? page_of(args, w, table, word + j) : 0;
            }
#pragma unroll
            for (u32 j = 0; j < kAtOnce; ++j) {
                stage_word(args, w, word + j, bits[j], paged, pages[j], staged, rank);
                rank += __popc(bits[j]);
            }
        }
        for (u32 i = written + at.thread; i < static_cast<u32>(args.k); i += S::Threads) {
            staged[i] = -1;
        }
        if (args.counts && at.thread == 0) {
            args.counts[v] = written;
        }
        end_row();
        sync();
        store_staged<S::Threads>(args, v, staged);
    }

    // ---- rows
    // -----------------------------------------------------------------------------------------------------------

    __device__ void run() {
        ring.init();
        if (at.warp < S::Warps) {
            end_row();
        }
        __syncthreads();
        ptx::wait_for_previous_kernel();
        if (at.warp == S::Warps) {
            if (at.lane == 0) {
                ring.fill();
            }
            return;
        }
        Row next = source.row(blockIdx.x);
        for (i32 v = blockIdx.x; v < args.rows; v += gridDim.x) {
            const Row w = next;
            next = source.row(v + gridDim.x);
            if (w.whole) {
                write_whole<S::Threads>(args, v, w);
            } else {
                select_row(v, w);
            }
        }
    }
};

}  // namespace sparrow_topk
