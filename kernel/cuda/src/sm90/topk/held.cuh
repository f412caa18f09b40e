// Top-k of many short rows: a block holds a row in its registers, so that shared memory has room for the next row to
// arrive while this one is selected. Same contract as kernel.cuh, for rows of up to Places scores, foreign ones
// included; every row is selected, none is left to another kernel.
//
// In:    scores f32 [rows, stride], lengths i32 [rows], optionally starts (args.h); no parts.
// Out:   i32 [rows, k], positions or their transform, padded with -1.
// Block: 256 threads, four blocks per SM; rows dealt round robin over the grid, which may have any size. Warp w has
//        scores [1024 w, 1024 w + 1024) of a row; lane l quads l, l + 32, ... of them.
// How:   1. bins over all scores, or over a part of them, give an interval that holds the k-th largest;
//        2. every thread turns its scores into two words of bits: above the interval (selected), and inside it;
//           scores inside join a list, unless the interval is a single value;
//        3. the list is cut exactly, or the first of the equal scores are taken;
//        4. winners are counted in order of position, eight counts of a lane at a time, and written.
//        A wrong guess costs time: the interval is then found by rounds of bins over the keys of all scores.
// Bytes: each score is read once from global memory; k indices are written.
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/copy.cuh"
#include "sm90/topk/interval.cuh"

namespace sparrow_topk {

// SampleQuads: how many of a lane's quads are counted for the guess.
template <int SampleQuadsV>
struct HeldShape {
    static constexpr int Threads = 256;
    static constexpr int Warps = Threads / 32;
    static constexpr int Bins = 4 * Threads;
    static constexpr int BinBits = 10;
    static constexpr int Quads = 8;                         // of a lane; their bits fill a word
    static constexpr int Places = Threads * Quads * 4;
    static constexpr int WarpPlaces = Places / Warps;
    static constexpr int List = kMaxK;
    static constexpr int ListSteps = List / Threads;
    static constexpr int SampleQuads = SampleQuadsV;
    static constexpr int SampleEvery = Quads / SampleQuads;
    static_assert(Quads % SampleQuads == 0, "the sample is spread evenly over the row");
};

template <class S>
struct HeldStorage {
    using Shape = S;

    float row[S::Places];           // the row to come
    u32 bins[S::Bins];              // clear between rows
    float values[S::List];          // the list's scores; later the row's output
    u32 positions[S::List];         // and their places in the row, foreign scores counted
    u32 listed[S::Threads];         // bits of a thread's scores that the list selects
    u64 small_bin[kSmallBin];
    u32 bin_sums[S::Warps];
    u32 warp_low[S::Warps], warp_high[S::Warps];
    u32 warp_counts[2][S::Warps];   // two sets in turn, so that one barrier per use is enough
    u32 above, count;               // scores above the interval and inside it; zero between rows
    u32 small_count;
    BinRank found;
    BinRank guess[2];
    Interval interval;
    u64 cut;
    u64 arrived;                    // mbarrier: the row to come is there
};

template <class S>
struct Held {
    const TopKArgs& args;
    HeldStorage<S>& shared;
    const Place at;
    u32 copies = 0;      // rows that have arrived
    u32 prefix_use = 0;
    float x[S::Quads * 4];

    __device__ __forceinline__ Held(const TopKArgs& a, HeldStorage<S>& s)
        : args(a), shared(s), at{threadIdx.x, threadIdx.x % 32, threadIdx.x / 32} {}

    __device__ __forceinline__ static void sync() { ptx::threads_sync<S::Threads>(); }

    // Scores beyond what fits are ignored: the launcher never lets that happen.
    __device__ __forceinline__ Row row(i32 v) const {
        if (v >= args.rows) {
            return Row{nullptr, 0, 0, 0, 0, true};
        }
        Row w = row_of(args, v);
        w.length = min(w.length, S::Places - w.head);
        return w;
    }

    // Asks for a row. One thread, when nobody reads the last one any more.
    __device__ __forceinline__ void ask(const Row& w) {
        if (!w.whole) {
            const u32 bytes = ((w.end() + 3) & ~3) * sizeof(float), bar = ptx::shared_address(&shared.arrived);
            ptx::barrier_expect(bar, bytes);
            ptx::load_bytes(ptx::shared_address(shared.row), w.scores, bytes, bar, ptx::kEvictFirst);
        }
    }

    // The place in the row of this thread's score i.
    __device__ __forceinline__ u32 place(u32 i) const {
        return at.warp * S::WarpPlaces + i / 4 * 128 + at.lane * 4 + i % 4; }

    // ---- the interval
    // ---------------------------------------------------------------------------------------------------

    // Takes the row into registers; what does not belong to it becomes NaN. True when nothing had to. Bins are placed
    // by 128 scores from all over the row.
    __device__ __forceinline__ bool take(const Row& w, SampleBins<S::Bins>& bins) {
        ptx::barrier_wait(ptx::shared_address(&shared.arrived), copies & 1);
        ++copies;
        const float4* quads = reinterpret_cast<const float4*>(shared.row);
#pragma unroll
        for (int j = 0; j < S::Quads; ++j) {
            const float4 q = quads[place(4 * j) / 4];
            x[4 * j] = q.x, x[4 * j + 1] = q.y, x[4 * j + 2] = q.z, x[4 * j + 3] = q.w;
        }
        bins = place_bins<S::Bins>(quads[at.lane * (w.end() / 128)]);
        const bool full = w.head == 0 && w.length == S::Places;
        if (!full) {
#pragma unroll
            for (int i = 0; i < 4 * S::Quads; ++i) {
                x[i] = static_cast<i32>(place(i)) - w.head >= 0 && static_cast<i32>(place(i)) < w.end() ? x[i]
                    : __int_as_float(0x7FFFFFFF);
            }
        }
        return full;
    }

    // Bins are clear before and full after.
    __device__ __forceinline__ Interval guess(const SampleBins<S::Bins>& bins, bool full) {
        if (bins.placed()) {
#pragma unroll
            for (int i = 0; i < 4 * S::Quads; ++i) {
                if (i / 4 % S::SampleEvery == S::SampleEvery / 2 && (full || x[i] == x[i])) {
                    atomicAdd(&shared.bins[bins.of(x[i])], 1u);
                }
            }
        }
        const Estimate estimate(args.k, S::SampleEvery, 2.0f);
        sync();
        sum_bins(shared, at);
        sync();
        if (at.warp < 2) {
            search_bins(shared, at, at.warp == 0 ? estimate.last() : estimate.best(), shared.guess[at.warp]);
        }
        sync();
        if (at.warp == 0) {  // the others leave the issue slots to whoever needs them
            const Interval v = interval_between(bins, shared.guess[0], shared.guess[1], estimate, S::List);
            if (at.lane == 0) {
                shared.interval = v;
            }
        }
        sync();
        return shared.interval;
    }

    // The interval by rounds of bins over keys. Begins and ends with a barrier.
    __device__ __forceinline__ Interval refined() {
        u32 low = kLowestKey, high = kKeyInf, rank = args.k;
        for (;;) {
            const KeyRange range{low, high};
            const u32 shift = range.template shift<S>();
            clear_bins(shared, at);
            if (at.thread == 0) {
                shared.above = 0;
                shared.count = 0;
            }
            sync();
#pragma unroll
            for (int i = 0; i < 4 * S::Quads; ++i) {
                if (x[i] == x[i]) {
                    const u32 key = key_of(x[i]);
                    if (key >= low && key <= high) {
                        atomicAdd(&shared.bins[(key - low) >> shift], 1u);
                    }
                }
            }
            sync();
            const BinRank found = find_bin(shared, at, rank);
            sync();
            if (found.inside == 0) {  // fewer than k scores that can be selected
                return Interval{kLowestKey, kKeyInf, false};
            }
            rank -= found.above;
            low += found.bin << shift;
            high = min(high, low + ((1u << shift) - 1));
            if (found.inside <= S::List || low == high) {
                return Interval{low, high, false};
            }
        }
    }

    // ---- winners
    // --------------------------------------------------------------------------------------------------------

    // Bit i: score i is above the interval, or inside it.
    __device__ __forceinline__ void classify(const Interval& v, u32& won, u32& inside) const {
        const float above = score_of(v.high), below = score_of(just_below(v.low));
        u32 a = 0, b = 0;  // the first score in bit 31; a set bit is the sign of threshold - score
#pragma unroll
        for (int i = 0; i < 4 * S::Quads; ++i) {
            a = __funnelshift_l(__float_as_uint(above - x[i]), a, 1);
            b = __funnelshift_l(__float_as_uint(below - x[i]), b, 1);
        }
        won = __brev(a);
        inside = __brev(b) & ~won;
    }

    // Adds the scores inside the interval to the list. When they do not fit, they are counted but not stored.
    __device__ __forceinline__ void append(u32 inside) {
        if (inside == 0) {
            return;
        }
        const u32 own = __popc(inside);
        u32 to = atomicAdd(&shared.count, own);
        if (to + own > S::List) {
            return;
        }
#pragma unroll
        for (int i = 0; i < 4 * S::Quads; ++i) {
            if (inside >> i & 1) {
                shared.values[to] = x[i];
                shared.positions[to] = place(i);
                ++to;
            }
        }
    }

    // The thread and the bit that a place belongs to.
    __device__ __forceinline__ void mark(u32 p) const {
        const u32 warp = p / S::WarpPlaces, in_warp = p % S::WarpPlaces;
        atomicOr(&shared.listed[warp * 32 + in_warp % 128 / 4], 1u << (in_warp / 128 * 4 + p % 4));
    }

    // Counts set bits in the order of places. before[j] is their number before quad j of this thread, all threads
    // counted; the sum of all is returned. One barrier.
    __device__ __forceinline__ u32 count_before(u32 bits, u32 (&before)[S::Quads]) {
        u32 pairs = bits - (bits >> 1 & 0x55555555u);
        pairs = (pairs & 0x33333333u) + (pairs >> 2 & 0x33333333u);  // the bits of quad j in four bits
        const u32 own[2] = {pairs & 0x0F0F0F0Fu, pairs >> 4 & 0x0F0F0F0Fu};  // of even and odd quads, in bytes
        u32 upto[2], sum[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {  // at most 128 in a byte
            upto[i] = ptx::warp_prefix(own[i], at.lane);
            sum[i] = __shfl_sync(ptx::kFullMask, upto[i], 31);
        }
        u32 total;
        const u32 of_warp = __dp4a(sum[0], 0x01010101u, __dp4a(sum[1], 0x01010101u, 0u));
        u32 base = warps_prefix(shared, at, of_warp, prefix_use ^= 1, total);
#pragma unroll
        for (int j = 0; j < S::Quads; ++j) {
            const u32 byte = j / 2 * 8;
            before[j] = base + ((upto[j % 2] - own[j % 2]) >> byte & 0xFF);
            base += sum[j % 2] >> byte & 0xFF;
        }
        return total;
    }

    // The first `wanted` of the set bits, in the order of places.
    __device__ __forceinline__ u32 take_first(u32 bits, u32 wanted) {
        u32 before[S::Quads], first = 0;
        count_before(bits, before);
#pragma unroll
        for (int j = 0; j < S::Quads; ++j) {
            u32 four = bits >> 4 * j & 15;
#pragma unroll 1
            while (four && before[j] + __popc(four) > wanted) {
                four ^= 0x80000000u >> __clz(four);
            }
            first |= four << 4 * j;
        }
        return first;
    }

    // ---- a row
    // ----------------------------------------------------------------------------------------------------------

    __device__ __forceinline__ void end_row() {
        clear_bins(shared, at);
        if (at.thread == 0) {
            shared.above = 0;
            shared.count = 0;
        }
    }

    __device__ __forceinline__ void select_row(i32 v, const Row& w, const Row& next) {
        const u32 k = args.k;
        SampleBins<S::Bins> bins;
        const bool full = take(w, bins);
        shared.listed[at.thread] = 0;
        sync();  // the row is in registers, and the last row's output has left the list
        if (at.thread == 0) {
            ask(next);
        }
        Interval interval = guess(bins, full);
        u32 won, inside, above, count;
        bool tied;
        for (;;) {
            classify(interval, won, inside);
            tied = interval.low == interval.high;
            if (!tied) {
                append(inside);
            }
            const u32 sums[2] = {ptx::warp_sum(__popc(won)), ptx::warp_sum(tied ? __popc(inside) : 0)};
            if (at.lane == 0) {
                atomicAdd(&shared.above, sums[0]);
                if (tied) {
                    atomicAdd(&shared.count, sums[1]);
                }
            }
            sync();
            above = shared.above;
            count = above == k ? 0 : shared.count;
            if (above <= k && (above + count >= k || interval.low <= kLowestKey) && (tied || count <= S::List)) {
                break;
            }
            sync();  // everybody has read the counts
            interval = refined();
        }
        if (tied) {
            won |= take_first(above == k ? 0 : inside, k - above);
        } else if (count > 0) {
            u32 keys[S::ListSteps];
            u64 cut = 0;
            if (above + count > k) {
                cut = cut_list(shared, at, keys, count, k - above, true, KeyRange{interval.low, interval.high});
            } else {
#pragma unroll
                for (int s = 0; s < S::ListSteps; ++s) {
                    keys[s] = s * S::Threads + at.thread < count;
                }
            }
            each_winner(shared, at, keys, count, cut, [&](u32 p) { mark(p); });
            sync();
            won |= shared.listed[at.thread];
        }
        write_row(v, w, won);
    }

    // Writes the winners in ascending order. The list is not needed any more once all threads are past the barrier of
    // the count.
    __device__ __forceinline__ void write_row(i32 v, const Row& w, u32 won) {
        i32* staged = reinterpret_cast<i32*>(shared.values);
        // Where every quad lies in one page, pages are asked for before the ranks are known; otherwise positions are
        // staged, and transformed on their way out.
        const bool paged = args.transform == kTopKPaged && args.page_shift >= 2 && w.head == 0;
        i32 first[S::Quads];
        const i32* table = paged ? table_of(args, w) : nullptr;
#pragma unroll
        for (int j = 0; j < S::Quads; ++j) {
            const u32 p = place(4 * j);
            first[j] = static_cast<i32>(p) - w.head;
            if (paged && won >> 4 * j & 15) {
                first[j] = table[p >> args.page_shift] << args.page_shift | (p & ((1 << args.page_shift) - 1));
            }
        }
        u32 before[S::Quads];
        const u32 written = count_before(won, before);
#pragma unroll
        for (int j = 0; j < S::Quads; ++j) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                if (won >> (4 * j + c) & 1) {
                    staged[before[j]++] = first[j] + c;
                }
            }
        }
        end_row();
        sync();
        if (!paged && args.transform != kTopKPosition) {
#pragma unroll 1
            for (u32 i = at.thread; i < written; i += S::Threads) {
                args.out[static_cast<i64>(v) * args.k + i] = transformed(args, w, staged[i]);
            }
            finish_row<S::Threads>(args, v, written);
            return;
        }
        if (args.counts && at.thread == 0) {
            args.counts[v] = written;
        }
        if (written < static_cast<u32>(args.k)) {
            for (u32 i = written + at.thread; i < static_cast<u32>(args.k); i += S::Threads) {
                staged[i] = -1;
            }
            sync();
        }
        store_staged<S::Threads>(args, v, staged);
    }

    // ---- rows
    // -----------------------------------------------------------------------------------------------------------

    __device__ void run() {
        if (at.thread == 0) {
            ptx::barrier_init(ptx::shared_address(&shared.arrived), 1);
            ptx::barrier_init_fence();
        }
        end_row();
        sync();
        ptx::wait_for_previous_kernel();
        Row next = row(blockIdx.x);
        if (at.thread == 0) {
            ask(next);
        }
        for (i32 v = blockIdx.x; v < args.rows; v += gridDim.x) {
            const Row w = next;
            next = row(v + gridDim.x);
            if (w.whole) {
                write_whole<S::Threads>(args, v, w);
                if (at.thread == 0) {
                    ask(next);
                }
            } else {
                select_row(v, w, next);
            }
        }
    }
};

}  // namespace sparrow_topk
