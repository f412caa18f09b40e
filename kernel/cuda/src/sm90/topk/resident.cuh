// Top-k of rows that fit into shared memory: at most 49152 scores with up to three foreign ones before them. Same contract as kernel.cuh.
//
// In:    scores f32 [rows, stride], lengths i32 [rows], optionally starts (args.h).
// Out:   i32 [rows, k], positions or their transform, padded with -1.
// Block: 512 threads and a copy warp, one per SM; rows dealt round robin over the grid, which may have any size. The copy warp fills a ring of 24 slots
//        of 2048 scores, so the next row arrives while this one is being cut.
// How:   1. a quarter of the row is sampled into bins while it arrives; they give an interval of scores that holds the k-th largest with a
//           margin of five standard deviations to either side;
//        2. one scan gives every thread 32 positions at a time as two words: scores above the interval, which have won, and scores inside;
//           then the ring takes the next row;
//        3. the few hundred scores inside are listed and cut exactly by bins;
//        4. the winners' words are ranked and written in order.
//        A wrong guess, or an interval with too many scores inside, is mended by exact bins over the row, which is still there. When the
//        interval is one value that many share (zeros behind a relu), the lowest positions win and there is no list. The interval
//        decides speed, never the result.
// Bytes: each score is read once from global memory; k indices are written.
// H200:  64 rows x 32k, k 2048: 11.7 us; one row of a million in 23 parts: 36 us.
#pragma once

#include "sm90/topk/interval.cuh"
#include "sm90/topk/ring.cuh"

namespace sparrow_topk {

constexpr int kResidentSlots = 24;
constexpr int kResident = kSlotScores * kResidentSlots;  // the longest row, foreign scores included

struct ResidentShape {
    static constexpr int Threads = 512;
    static constexpr int Warps = Threads / 32;
    static constexpr int Bins = 4 * Threads;
    static constexpr int BinBits = 11;
    static constexpr int List = 2048;                       // capacity of the list
    static constexpr int ListSteps = List / Threads;
    static constexpr int Words = kResident / 32 / Threads;  // words of 32 places per thread
};

struct ResidentStorage {
    using Shape = ResidentShape;

    RingStorage<kResidentSlots> ring;
    u32 bins[Shape::Bins];            // clear between rows
    float values[Shape::List];        // the list's scores; later the row's output
    u32 positions[Shape::List];       // and their places in the row, foreign scores counted
    u32 bitmap[kResident / 32];       // winners
    u64 small_bin[kSmallBin];
    u32 warp_low[Shape::Warps], warp_high[Shape::Warps];
    u32 bin_sums[Shape::Warps];
    u32 warp_counts[2][Shape::Warps];  // two sets in turn, so that one barrier per use is enough
    u32 above;
    u32 small_count;
    BinRank found;
    BinRank guess[2];
    Interval interval;
    u64 cut;
};
static_assert(sizeof(ResidentStorage) <= 232448, "opt-in shared memory of one block");
static_assert(ResidentShape::List >= kMaxK, "the output lies over the list's scores");

// Rows that fit into the ring, copied from front to back.
struct ResidentSource {
    const TopKArgs& args;

    __device__ __forceinline__ i32 count() const { return row_count(args); }

    // Scores beyond what fits are ignored: the launcher never lets that happen.
    __device__ __forceinline__ Row row(i32 v) const {
        if (v >= count()) {
            return Row{nullptr, 0, 0, 0, 0, true};
        }
        Row w = row_of(args, v);
        w.length = min(w.length, kResident - w.head);
        return w;
    }

    __device__ __forceinline__ i32 copies(const Row& w) const { return w.whole ? 0 : (w.end() + kSlotScores - 1) / kSlotScores; }
    __device__ __forceinline__ i32 order(const Row&, i32 i) const { return i; }
};

struct Resident {
    using S = ResidentShape;

    const TopKArgs& args;
    ResidentStorage& shared;
    const Place at;
    const ResidentSource source;
    Ring<kResidentSlots, 1, ResidentSource> ring;
    u32 prefix_use = 0;

    __device__ __forceinline__ Resident(const TopKArgs& a, ResidentStorage& s)
        : args(a), shared(s), at{threadIdx.x, threadIdx.x % 32, threadIdx.x / 32}, source{a}, ring(s.ring, source) {}

    // ---- the interval ---------------------------------------------------------------------------------------------------

    // The sample is one of four quads: which one changes from lane to lane, so that no two lanes of a load meet in a bank. Quads at the
    // row's ends that hold foreign scores are left out.
    template <class Each>
    __device__ __forceinline__ void each_sampled(const Row& w, const Each& each) const {
        const i32 quad = at.warp % 4 * 128 + at.lane * 4 + (at.lane / 2) % 4;
        const u32 count = source.copies(w);
        for (u32 number = at.warp / 4; number < count; number += 4) {
            const float* scores = ring.copy(number);
            const i32 i = number * kSlotScores + quad * 4;
            if (i >= w.head && i + 4 <= w.end()) {
                visit(reinterpret_cast<const float4*>(scores)[quad], each);
            }
        }
    }

    // Judged by a sample, between which keys the k-th largest score is. Bins are clear before and full after.
    __device__ __forceinline__ Interval guess(const Row& w) {
        float4 quads[4];  // of the second half of the first copy, which holds no foreign scores
        const float4* first = reinterpret_cast<const float4*>(ring.copy(0)) + kSlotScores / 8;
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            quads[q] = first[q * 32 + at.lane];
        }
        const auto bins = place_bins<S::Bins>(quads);
        if (bins.placed()) {
            each_sampled(w, [&](float x) { atomicAdd(&shared.bins[bins.of(x)], 1u); });
        }
        const float expected = 0.25f * args.k;
        return interval_of(shared, at, bins, expected, 5.0f * __fsqrt_rn(0.75f * expected) + 2.0f, 4.0f);
    }

    // Moves the ends of the interval to the smallest and largest score inside, of which there is at least one.
    __device__ __forceinline__ void narrow(const Row& w, Interval& v) {
        u32 low = ~0u, high = 0;
        each_score(w, [&](float x) {
            const u32 key = x > minus_inf() ? key_of(x) : 0;
            if (key >= v.low && key <= v.high) {
                low = min(low, key);
                high = max(high, key);
            }
        });
        key_range(shared, at, low, high);
        v.low = low;
        v.high = high;
    }

    // Splits the interval exactly, by bins over all of the row. Afterwards its scores may still be too many for the list, or it may have
    // turned out to lie on the wrong side.
    __device__ void split(const Row& w, Interval& v) {
        ptx::threads_sync<S::Threads>();
        clear_bins(shared, at);
        if (at.thread == 0) {
            shared.above = 0;
        }
        ptx::threads_sync<S::Threads>();
        const KeyRange range{v.low, v.high};
        const u32 shift = range.template shift<S>();
        u32 above = 0;
        each_score(w, [&](float x) {
            const u32 key = x > minus_inf() ? key_of(x) : 0;
            above += key > range.high;
            if (key >= range.low && key <= range.high) {
                atomicAdd(&shared.bins[(key - range.low) >> shift], 1u);
            }
        });
        above = ptx::warp_sum(above);
        if (at.lane == 0) {
            atomicAdd(&shared.above, above);
        }
        ptx::threads_sync<S::Threads>();
        above = shared.above;
        const u32 k = args.k;
        if (above >= k) {
            v = Interval{range.high + 1, kKeyInf, true};
            return;
        }
        const BinRank found = find_bin(shared, at, k - above);
        if (found.inside == 0) {
            const bool all = range.low <= kLowestKey;  // there are fewer than k numbers
            v = all ? Interval{range.low, range.high, false} : Interval{kLowestKey, range.low - 1, true};
            return;
        }
        v.low = range.low + (found.bin << shift);
        v.high = min(range.high, v.low + ((1u << shift) - 1));
        v.refine = false;
        if (found.inside > S::List && v.low < v.high) {
            narrow(w, v);
        }
    }

    // ---- words ----------------------------------------------------------------------------------------------------------

    // Word j of this thread stands for places 32 * number(j) and following of the row, foreign scores counted.
    __device__ __forceinline__ u32 number(int j) const { return j * S::Threads + at.thread; }

    // Whether any lane of the warp has places in its word j.
    __device__ __forceinline__ bool reaches(const Row& w, int j) const { return static_cast<i32>((number(j) - at.lane) * 32) < w.end(); }

    // The scores of a word. All words of a warp are in one copy.
    __device__ __forceinline__ const float* scores_of(u32 word) const { return ring.copy(word / kSlotWords) + word % kSlotWords * 32; }

    // All scores of this thread's words: the slow road.
    template <class Each>
    __device__ __forceinline__ void each_score(const Row& w, const Each& each) const {
#pragma unroll 1
        for (int j = 0; j < S::Words; ++j) {
            const u32 bits = valid_places(w, number(j));
            if (bits == 0) {
                continue;
            }
            const float* scores = scores_of(number(j));
#pragma unroll 1
            for (u32 q = 0; q < 8; ++q) {
                const u32 quad = (q + at.lane) % 8;
                const float4 v = reinterpret_cast<const float4*>(scores)[quad];
                const u32 in = bits >> quad * 4;
                each(in & 1 ? v.x : minus_inf());
                each(in & 2 ? v.y : minus_inf());
                each(in & 4 ? v.z : minus_inf());
                each(in & 8 ? v.w : minus_inf());
            }
        }
    }

    // How many of the row's set bits come before each of this thread's words, and how many there are.
    __device__ __forceinline__ u32 ranks(const Row& w, const u32 (&words)[S::Words], u32 (&before)[S::Words]) {
        static_assert(S::Words == 3, "two counts in one number, and a third");
        const u32 own = __popc(words[0]) | __popc(words[1]) << 16;
        u32 upto = ptx::warp_prefix(own, at.lane), total;
        const u32 first = warps_prefix(shared, at, __shfl_sync(ptx::kFullMask, upto, 31), prefix_use ^= 1, total) + upto - own;
        before[0] = first & 0xFFFF;
        before[1] = (total & 0xFFFF) + (first >> 16);
        u32 sum = (total & 0xFFFF) + (total >> 16);
        before[2] = sum;
        if (w.end() > 2 * 32 * S::Threads) {
            const u32 last = __popc(words[2]);
            upto = ptx::warp_prefix(last, at.lane);
            before[2] += warps_prefix(shared, at, __shfl_sync(ptx::kFullMask, upto, 31), prefix_use ^= 1, total) + upto - last;
            sum += total;
        }
        return sum;
    }

    // ---- a row ----------------------------------------------------------------------------------------------------------

    __device__ __forceinline__ void select_row(i32 v, const Row& w) {
        const u32 k = args.k;
        const bool sampled = w.length > S::List;
        Interval interval{kLowestKey, kKeyInf, false};
        if (sampled) {
            interval = guess(w);
        }
        u32 won[S::Words], inside[S::Words];
        u32 first = 0, above = 0, count = 0;  // list entries before this thread's, scores above the interval and inside it
        enum { kAll, kTies, kList } road;
        for (;;) {
            if (interval.refine) {
                split(w, interval);
            }
            if (interval.refine) {
                continue;
            }
            u32 own = 0;
#pragma unroll
            for (int j = 0; j < S::Words; ++j) {
                won[j] = inside[j] = 0;
                if (reaches(w, j)) {
                    const u32 bits = valid_places(w, number(j));
                    scan_word(scores_of(number(j)), at.lane, interval, won[j], inside[j]);
                    won[j] &= bits;
                    inside[j] &= bits;
                    own += __popc(won[j]) | __popc(inside[j]) << 16;
                }
            }
            const u32 upto = ptx::warp_prefix(own, at.lane);
            u32 total;
            first = (warps_prefix(shared, at, __shfl_sync(ptx::kFullMask, upto, 31), prefix_use ^= 1, total) + upto - own) >> 16;
            above = total & 0xFFFF;
            count = total >> 16;
            if (above > k) {  // the guess was too low
                interval = Interval{interval.high + 1, kKeyInf, true};
                continue;
            }
            if (above + count < k && interval.low > kLowestKey) {  // it was too high
                interval = Interval{kLowestKey, interval.low - 1, true};
                continue;
            }
            if (above == k) {
                count = 0;
#pragma unroll
                for (int j = 0; j < S::Words; ++j) {
                    inside[j] = 0;
                }
            }
            road = above + count <= k ? kAll : interval.low == interval.high ? kTies : kList;
            if (road == kList && count > S::List) {
                interval.refine = true;
                continue;
            }
            break;
        }
        if (road == kList) {
            u32 to = first & 0xFFFF;
#pragma unroll
            for (int j = 0; j < S::Words; ++j) {
                if (reaches(w, j)) {
                    const float* scores = scores_of(number(j));
                    for (u32 left = inside[j]; left; left &= left - 1, ++to) {
                        const u32 i = __ffs(left) - 1;
                        shared.values[to] = scores[i];
                        shared.positions[to] = number(j) * 32 + i;
                    }
                    shared.bitmap[number(j)] = won[j];
                }
            }
        }
        ptx::threads_sync<S::Threads>();  // the row's scores are done with
        const u32 copies = source.copies(w);
        if (at.thread < copies) {
            ring.give_back(at.thread);
        }
        ring.next_row(copies);
        i32 pages[S::Words];
        const bool paged = words_in_pages(args, w);
        const i32* table = paged ? table_of(args, w) : nullptr;
#pragma unroll
        for (int j = 0; j < S::Words; ++j) {
            pages[j] = paged ? page_of(args, w, table, number(j)) : 0;
        }
        if (road == kList) {
            u32 keys[S::ListSteps];
            const u64 cut = cut_list(shared, at, keys, count, k - above, sampled, KeyRange{interval.low, interval.high});
            each_winner(shared, at, keys, count, cut, [&](u32 place) { atomicOr(&shared.bitmap[place / 32], 1u << place % 32); });
            ptx::threads_sync<S::Threads>();
#pragma unroll
            for (int j = 0; j < S::Words; ++j) {
                won[j] = reaches(w, j) ? shared.bitmap[number(j)] : 0;
            }
        } else if (road == kTies) {
            u32 before[S::Words];
            ranks(w, inside, before);
#pragma unroll
            for (int j = 0; j < S::Words; ++j) {
                inside[j] = first_bits(inside[j], before[j], k - above);
            }
        }
        if (road != kList) {
#pragma unroll
            for (int j = 0; j < S::Words; ++j) {
                won[j] |= inside[j];
            }
        }
        write_row(v, w, won, pages, paged);
    }

    // Writes the winners in ascending order. Leaves the bins clear.
    __device__ __forceinline__ void write_row(i32 v, const Row& w, const u32 (&won)[S::Words], const i32 (&pages)[S::Words], bool paged) {
        i32* staged = reinterpret_cast<i32*>(shared.values);
        u32 rank[S::Words];
        const u32 written = ranks(w, won, rank);
#pragma unroll
        for (int j = 0; j < S::Words; ++j) {
            stage_word(args, w, number(j), won[j], paged, pages[j], staged, rank[j]);
        }
        for (u32 i = written + at.thread; i < static_cast<u32>(args.k); i += S::Threads) {
            staged[i] = -1;
        }
        clear_bins(shared, at);
        if (args.counts && at.thread == 0) {
            args.counts[v] = written;
        }
        ptx::threads_sync<S::Threads>();
        store_staged<S::Threads>(args, v, staged);
        if (args.kept) {  // the transform is the position
            for (i32 i = at.thread; i < args.k; i += S::Threads) {
                args.kept[static_cast<i64>(v) * args.k + i] = staged[i] < 0 ? minus_inf() : w.scores[w.head + staged[i] - w.first];
            }
        }
    }

    // ---- rows -----------------------------------------------------------------------------------------------------------

    __device__ void run() {
        ring.init();
        if (at.warp < S::Warps) {
            clear_bins(shared, at);
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
        const i32 rows = source.count();
        for (i32 v = blockIdx.x; v < rows; v += gridDim.x) {
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
