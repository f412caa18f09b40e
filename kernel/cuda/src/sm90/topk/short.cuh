// Top-k of many short rows. One block per SM holds several rows in shared memory, and each of its teams of warps
// selects one row while others arrive. The contract is that of kernel.cuh, for rows of up to Places scores, including
// the leading scores of other rows. Every row is selected; none is left to another kernel.
//
// In:    scores f32 [rows, stride], lengths i32 [rows], optionally starts (args.h); no parts.
// Out:   i32 [rows, k], positions or their transform, padded with -1.
// Block: Teams teams of Threads threads and a copy warp; rows are assigned round robin over the grid, which may have
//        any size. The i-th row of a block is in slot i % Slots and belongs to team i % Teams.
// How:   1. All scores are counted in linear bins, which are placed by a sample of the row. This gives exactly the
//           bin of the k-th largest score and the numbers of scores above and inside it.
//        2. Every thread converts its words of 32 scores to bits: above the bin (selected), and inside it.
//        3. The few scores inside are listed, and every thread ranks its own scores inside among the list.
//        4. Winners are counted in order of position, staged over the memory of the row, and written.
//        A bin with too many scores (misplaced bins, or equal scores) costs time. It is split at zero if the k-th
//        largest score is zero, as is common after a relu. Otherwise the interval of the k-th largest is found by
//        rounds of bins over the keys.
// Bytes: each score is read once from global memory; k indices are written.
// H200:  4096 rows x 8k, k 2048, paged: 58 us, 68 % of one read and one write at 4.3 TB/s.
#pragma once

#include "ptx/async.cuh"
#include "ptx/barrier.cuh"
#include "ptx/copy.cuh"
#include "ptx/team.cuh"
#include "sm90/topk/interval.cuh"

namespace sparrow_topk {

template <int PlacesV, int ThreadsV, int TeamsV, int SlotsV>
struct ShortShape {
    static constexpr int Threads = ThreadsV;               // threads per team
    static constexpr int Warps = Threads / 32;
    static constexpr int Teams = TeamsV;
    static constexpr int Slots = SlotsV;
    static constexpr int BlockThreads = Threads * Teams + 32;
    static constexpr int Places = PlacesV;                 // maximum scores of a row
    static constexpr int Words = Places / 32 / Threads;    // words per thread: word j * Threads + thread
    static constexpr int Bins = 1024;
    static constexpr int BinBits = 10;
    static constexpr int BinQuads = Bins / 4 / Threads;    // quads of bins per thread
    static constexpr int List = 128;
    static_assert(Words >= 1 && BinQuads >= 1, "sizes divide");
    static_assert(Places < 1 << 16, "counts of a row are kept in halves of a word");
};

// The shared memory of one team.
template <class S>
struct ShortTeam {
    alignas(16) u32 bins[S::Bins];         // clear between rows
    u64 list[S::List];                     // candidates inside the bin of the k-th largest score
    alignas(16) u32 bin_counts[S::Warps];  // number of scores in the bins of each warp
    alignas(16) u32 ranks[S::Words][S::Warps];
    u32 lows[S::Warps], highs[S::Warps], counts[S::Warps];
    u32 at_zero[S::Warps];  // per warp: number of scores above zero, and of zeros, as 16-bit halves
    BinRank found;
    u32 listed;
};

template <class S>
struct ShortStorage {
    alignas(128) float slots[S::Slots][S::Places];  // scores of the rows; later the selected positions
    ShortTeam<S> teams[S::Teams];
    Row rows[S::Slots];
    u64 arrived[S::Slots];  // mbarriers: the row of the slot has arrived
    u64 emptied[S::Slots];  // mbarriers: all readers have released the slot
};

constexpr u32 kBinZero = 0x4B000000u;  // bits of 2^23, which are added to the bin number

// Linear bins over the scores around the expected k-th largest, for a normal distribution of scores. Scores outside the
// range are in the first or the last bin, and NaN in the first. The bin of a score is the integer part of (score -
// lower end) / range * (number of the last bin).
template <int Bins>
struct LinearBins {
    float scale, shift;

    // Places the bins from a quad of sampled scores per lane.
    __device__ __forceinline__ LinearBins(float4 quad, const Row& w, u32 k) {
        const Moments of(quad);
        const float mean = of.mean, variance = of.variance;
        // The number of standard deviations above the mean beyond which a share k / length of a normal distribution
        // lies.
        const float z = 0.5875f * __logf(__fdividef(static_cast<float>(w.length - k), static_cast<float>(k)));
        constexpr float kReach = 2.0f;  // standard deviations from the middle of the bins to either end
        // Scores that are almost equal are all in bin 0.
        const bool placed = variance > 1e-30f && variance > 1e-12f * mean * mean;
        scale = placed ? rsqrtf(variance) * (0.5f / kReach) : 0.0f;
        shift = placed ? 0.5f - z * (0.5f / kReach) - mean * scale : 0.0f;
    }

    // Returns kBinZero + the bin of the score.
    __device__ __forceinline__ u32 of(float score) const {
        const float share = __saturatef(__fmaf_rn(score, scale, shift));
        return __float_as_uint(__fmaf_rd(share, Bins - 1, 8388608.0f));
    }
};

// The undecided scores of a row: their number (count), how many of them must still be selected (wanted), and whether
// they are equal.
struct Inside {
    u32 count, wanted;
    bool tied;
};

// The decision about an undecided score.
enum class Verdict { kWins, kLoses, kStays };

template <class S>
struct ShortRows {
    const TopKArgs& args;
    ShortStorage<S>& shared;
    ShortTeam<S>& mine;
    const u32 team, thread, lane, warp;
    using ShortBins = LinearBins<S::Bins>;

    __device__ __forceinline__ ShortRows(const TopKArgs& a, ShortStorage<S>& s)
        : args(a),
          shared(s),
          mine(s.teams[min(threadIdx.x / S::Threads, static_cast<u32>(S::Teams - 1))]),
          team(threadIdx.x / S::Threads),
          thread(threadIdx.x % S::Threads),
          lane(threadIdx.x % 32),
          warp(threadIdx.x % S::Threads / 32) {}

    __device__ __forceinline__ void sync() const { ptx::team_sync<S::Threads>(team + 1); }

    __device__ __forceinline__ u32 rows() const {
        return (args.rows - blockIdx.x + gridDim.x - 1) / gridDim.x;
    }

    // ---- the copy warp

    // Each lane has every 32nd row of the block. Copies are issued in the order of rows.
    __device__ __forceinline__ void fill() {
        const u32 count = rows();
        for (u32 base = 0; base < count; base += 32) {
            const u32 own = base + lane;
            Row w{nullptr, 0, 0, 0, 0, true};
            if (own < count) {
                w = row_of(args, blockIdx.x + own * gridDim.x);
                // Scores beyond the capacity are ignored; the launcher does not pass such rows.
                w.length = min(w.length, S::Places - w.head);
            }
            for (u32 i = base; i < min(base + 32, count); ++i) {
                if (i == own) {
                    const u32 slot = i % S::Slots, bar = ptx::shared_address(&shared.arrived[slot]);
                    ptx::barrier_wait(ptx::shared_address(&shared.emptied[slot]), (i / S::Slots & 1) ^ 1);
                    shared.rows[slot] = w;
                    if (w.whole) {
                        ptx::barrier_arrive(bar);
                    } else {
                        const u32 bytes = ((w.end() + 3) & ~3) * sizeof(float);
                        ptx::barrier_expect(bar, bytes);
                        ptx::load_bytes(ptx::shared_address(shared.slots[slot]), w.scores, bytes, bar,
                            ptx::kEvictFirst);
                    }
                }
                __syncwarp();
            }
        }
    }

    // ---- the bin of the k-th largest

    // The bins of this thread's scores. The halves of register i of word j are positions i and i + 16 of the word, in
    // the rotated order of load().
    struct BinsOfScores {
        u32 pair[S::Words][16];
    };

    // Loads the 32 scores of a word. Lanes start with different quads to avoid bank conflicts; in_order() rotates the
    // results back.
    __device__ __forceinline__ void load(const float* word, float (&x)[32]) const {
#pragma unroll
        for (u32 q = 0; q < 8; ++q) {
            const float4 v = reinterpret_cast<const float4*>(word)[(q + lane) % 8];
            x[4 * q] = v.x, x[4 * q + 1] = v.y, x[4 * q + 2] = v.z, x[4 * q + 3] = v.w;
        }
    }
    __device__ __forceinline__ u32 in_order(u32 bits) const {
        return __funnelshift_l(bits, bits, lane % 8 * 4);
    }

    // Counts all scores of a row in bins. Places that do not belong to the row are not counted and get bin 0.
    __device__ __forceinline__ void count(const Row& w, const float* scores, const ShortBins& bins, BinsOfScores& to) {
        const u32 base = ptx::shared_address(mine.bins) - 4 * kBinZero;
#pragma unroll
        for (int j = 0; j < S::Words; ++j) {
            const u32 word = j * S::Threads + thread, valid = valid_places(w, word);
            u32 bin[32];
            if (valid != 0) {
                float x[32];
                load(scores + word * 32, x);
#pragma unroll
                for (int i = 0; i < 32; ++i) {
                    bin[i] = bins.of(x[i]);
                }
                if (valid == ~0u) {
#pragma unroll
                    for (int i = 0; i < 32; ++i) {
                        ptx::count_one(base + 4 * bin[i]);
                    }
                } else {
                    const u32 turned = __funnelshift_r(valid, valid, lane % 8 * 4);
#pragma unroll
                    for (int i = 0; i < 32; ++i) {
                        if (turned >> i & 1) {
                            ptx::count_one(base + 4 * bin[i]);
                        } else {
                            bin[i] = kBinZero;
                        }
                    }
                }
            } else {
#pragma unroll
                for (int i = 0; i < 32; ++i) {
                    bin[i] = kBinZero;
                }
            }
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                to.pair[j][i] = __byte_perm(bin[i], bin[i + 16], 0x5410);
            }
        }
    }

    // Returns the bin of rank `rank` >= 1 from the top. inside is 0 if the bins hold fewer scores. The bins must have
    // been filled before a barrier and are cleared afterwards. It uses two barriers.
    __device__ __forceinline__ BinRank find(u32 rank) {
        uint4* quads = reinterpret_cast<uint4*>(mine.bins) + (S::Threads - 1 - thread) * S::BinQuads;
        uint4 own[S::BinQuads];
        u32 sum = 0;
#pragma unroll
        for (int i = 0; i < S::BinQuads; ++i) {
            own[i] = quads[i];
            sum += own[i].x + own[i].y + own[i].z + own[i].w;
            quads[i] = make_uint4(0, 0, 0, 0);
        }
        u32 upto = ptx::warp_prefix(sum, lane);
        if (lane == 31) {
            mine.bin_counts[warp] = upto;
        }
        if (thread == 0) {
            mine.found = BinRank{0, 0, 0};
            mine.listed = 0;
        }
        sync();
#pragma unroll
        for (u32 i = 0; i < S::Warps; ++i) {
            upto += i < warp ? mine.bin_counts[i] : 0;
        }
        if (upto - sum < rank && rank <= upto) {
            BinRank found{(S::Threads - thread) * S::BinQuads * 4, upto - sum, 0};
#pragma unroll
            for (int i = S::BinQuads - 1; i >= 0; --i) {
                const u32 bins[4] = {own[i].w, own[i].z, own[i].y, own[i].x};
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    if (found.above + found.inside < rank) {
                        found = BinRank{found.bin - 1, found.above + found.inside, bins[j]};
                    }
                }
            }
            mine.found = found;
        }
        sync();
        return mine.found;
    }

    // ---- winners

    // One bit per score of this thread's words.
    struct Bits {
        u32 word[S::Words];
    };

    // Sets the bits of scores above a bin and inside it.
    __device__ __forceinline__ void classify(const BinsOfScores& of, u32 bin, Bits& won, Bits& inside) const {
        // Bit 15 of a sum is set if the score is at or above the bin.
        const u32 from = (0x8000 - bin) * 0x10001, above = from - 0x10001;
#pragma unroll
        for (int j = 0; j < S::Words; ++j) {
            u32 a = 0, b = 0;
#pragma unroll
            for (int i = 0; i < 16; ++i) {
                a = (a >> 1) | ((of.pair[j][i] + above) & 0x80008000u);
                b = (b >> 1) | ((of.pair[j][i] + from) & 0x80008000u);
            }
            won.word[j] = in_order(a);
            inside.word[j] = in_order(b & ~a);
        }
    }

    // Calls each(word, bit, place) for the set bits of this thread's words. Meant for few set bits.
    template <class Each>
    __device__ __forceinline__ void each_bit(const Bits& bits, const Each& each) const {
#pragma unroll
        for (int j = 0; j < S::Words; ++j) {
#pragma unroll 1
            for (u32 left = bits.word[j]; left; left &= left - 1) {
                each(j, left & -left, (j * S::Threads + thread) * 32 + __ffs(left) - 1);
            }
        }
    }

    // Calls each(score) for all scores inside, of which there may be many; each returns the decision about the score.
    template <class Each>
    __device__ __forceinline__ void each_inside(const float* scores, Bits& won, Bits& inside, const Each& each) const {
#pragma unroll
        for (int j = 0; j < S::Words; ++j) {
            if (inside.word[j] == 0) {
                continue;
            }
            const u32 turned = __funnelshift_r(inside.word[j], inside.word[j], lane % 8 * 4);
            const float4* quads = reinterpret_cast<const float4*>(scores + (j * S::Threads + thread) * 32);
            u32 wins = 0, stays = 0;
#pragma unroll 2
            for (u32 q = 0; q < 8; ++q) {
                u32 bit = 1u << 4 * q;
                visit(quads[(q + lane) % 8], [&](float score) {
                    if (turned & bit) {
                        const Verdict v = each(score);
                        wins |= v == Verdict::kWins ? bit : 0;
                        stays |= v == Verdict::kStays ? bit : 0;
                    }
                    bit <<= 1;
                });
            }
            won.word[j] |= in_order(wins);
            inside.word[j] = in_order(stays);
        }
    }

    // Sets before[j] to the number of set bits before word j of this thread, in order of position, and returns the
    // total number. It uses one barrier.
    __device__ __forceinline__ u32 count_before(const Bits& bits, u32 (&before)[S::Words]) {
        u32 upto[S::Words];
#pragma unroll
        for (int j = 0; j < S::Words; j += 2) {  // two counts at a time, in the halves of a register
            const bool pair = j + 1 < S::Words;
            const u32 own = __popc(bits.word[j]) | (pair ? __popc(bits.word[pair ? j + 1 : j]) << 16 : 0);
            const u32 sum = ptx::warp_prefix(own, lane);
            upto[j] = sum & 0xFFFF;
            before[j] = upto[j] - (own & 0xFFFF);
            if (pair) {
                upto[pair ? j + 1 : j] = sum >> 16;
                before[pair ? j + 1 : j] = (sum >> 16) - (own >> 16);
            }
        }
        if (lane == 31) {
#pragma unroll
            for (int j = 0; j < S::Words; ++j) {
                mine.ranks[j][warp] = upto[j];
            }
        }
        sync();
        u32 total = 0;
#pragma unroll
        for (int j = 0; j < S::Words; ++j) {
            before[j] += total;
#pragma unroll
            for (u32 i = 0; i < S::Warps; ++i) {
                const u32 of_warp = mine.ranks[j][i];
                before[j] += i < warp ? of_warp : 0;
                total += of_warp;
            }
        }
        return total;
    }

    // Decides scores inside if the `wanted` largest are all scores above zero and some zeros: the positive scores
    // win, the zeros stay undecided. Otherwise returns false and decides nothing. It uses one barrier.
    __device__ __forceinline__ bool split_at_zero(const float* scores, u32 wanted, Bits& won, Bits& inside,
        Inside& in) {
        const Interval zero{key_of(0.0f), key_of(0.0f), false};
        u32 above[S::Words], equal[S::Words], count = 0;  // count: scores above zero, and zeros, as 16-bit halves
#pragma unroll
        for (int j = 0; j < S::Words; ++j) {
            scan_word<2>(scores + (j * S::Threads + thread) * 32, lane, zero, above[j], equal[j]);
            above[j] &= inside.word[j];
            equal[j] &= inside.word[j];
            count += __popc(above[j]) | __popc(equal[j]) << 16;
        }
        count = ptx::warp_sum(count);
        if (lane == 0) {
            mine.at_zero[warp] = count;
        }
        sync();
        count = 0;
#pragma unroll
        for (u32 i = 0; i < S::Warps; ++i) {
            count += mine.at_zero[i];
        }
        const u32 larger = count & 0xFFFF, zeros = count >> 16;
        if (larger > wanted || wanted > larger + zeros) {
            return false;
        }
#pragma unroll
        for (int j = 0; j < S::Words; ++j) {
            won.word[j] |= above[j];
            inside.word[j] = equal[j];
        }
        in = Inside{zeros, wanted - larger, true};
        return true;
    }

    // Adds to won those of the scores inside that are certainly among the `wanted` largest. The scores that stay
    // undecided are few enough for the list, or all have the same key, or are all wanted. Many scores are inside if
    // bins were misplaced, if scores are equal, and in bin 0, which also holds the scores that cannot be selected.
    __device__ __forceinline__ Inside narrow(const float* scores, u32 wanted, Bits& won, Bits& inside) {
        for (;;) {
            u32 low = ~0u, high = 0, count = 0;
            each_inside(scores, won, inside, [&](float score) {
                if (!(score > minus_inf())) {
                    return Verdict::kLoses;
                }
                const u32 key = key_of(score);
                low = min(low, key);
                high = max(high, key);
                ++count;
                return Verdict::kStays;
            });
            low = ~ptx::warp_max(~low);
            high = ptx::warp_max(high);
            count = ptx::warp_sum(count);
            if (lane == 0) {
                mine.lows[warp] = low;
                mine.highs[warp] = high;
                mine.counts[warp] = count;
            }
            sync();
            count = 0;
#pragma unroll
            for (u32 i = 0; i < S::Warps; ++i) {
                low = min(low, mine.lows[i]);
                high = max(high, mine.highs[i]);
                count += mine.counts[i];
            }
            if (count <= wanted || count <= S::List || low == high) {
                sync();  // all threads have read low, high and count
                return Inside{count, wanted, low == high};
            }
            const u32 shift = KeyRange{low, high}.template shift<S>();
            each_inside(scores, won, inside, [&](float score) {
                ptx::count_one(ptx::shared_address(mine.bins) + ((key_of(score) - low) >> shift) * 4);
                return Verdict::kStays;
            });
            sync();
            const BinRank found = find(wanted);
            wanted -= found.above;
            each_inside(scores, won, inside, [&](float score) {
                const u32 bin = (key_of(score) - low) >> shift;
                return bin > found.bin ? Verdict::kWins : bin < found.bin ? Verdict::kLoses : Verdict::kStays;
            });
        }
    }

    // Adds the `wanted` largest of the `count` scores inside to the winners. It uses one barrier.
    __device__ __forceinline__ void take_best(const float* scores, const Bits& inside, u32 count, u32 wanted,
        Bits& won) {
        each_bit(inside, [&](int, u32, u32 place) {
            mine.list[atomicAdd(&mine.listed, 1u)] = candidate(key_of(scores[place]), place);
        });
        sync();
        each_bit(inside, [&](int j, u32 bit, u32 place) {
            const u64 own = candidate(key_of(scores[place]), place);
            u32 larger = 0;
#pragma unroll 4
            for (u32 i = 0; i < count; ++i) {
                larger += mine.list[i] > own;
            }
            won.word[j] |= larger < wanted ? bit : 0;
        });
    }

    // Adds the first `wanted` of the scores inside, which are all equal, to the winners. It uses two barriers.
    __device__ __forceinline__ void take_first(const Bits& inside, u32 wanted, Bits& won) {
        u32 before[S::Words];
        count_before(inside, before);
#pragma unroll
        for (int j = 0; j < S::Words; ++j) {
            won.word[j] |= first_bits(inside.word[j], before[j], wanted);
        }
        sync();  // the memory of the counts is used again
    }

    // ---- a row

    __device__ __forceinline__ void select_row(i32 v, const Row& w, float* scores) {
        const u32 k = args.k;
        Bits won, inside;
        Inside in;
        {
            BinsOfScores bins;
            count(w, scores, ShortBins(reinterpret_cast<const float4*>(scores)[lane * (w.end() / 128)], w, k), bins);
            sync();
            const BinRank found = find(k);
            classify(bins, found.bin, won, inside);
            in = Inside{found.inside, k - found.above, false};
            if (found.bin == 0) {
#pragma unroll
                for (int j = 0; j < S::Words; ++j) {
                    inside.word[j] &= valid_places(w, j * S::Threads + thread);
                }
            }
            if ((found.bin == 0 || found.inside > S::List) && !split_at_zero(scores, in.wanted, won, inside, in)) {
                in = narrow(scores, in.wanted, won, inside);
            }
        }
        const bool paged = words_in_pages(args, w);
        i32 pages[S::Words];
#pragma unroll
        for (int j = 0; j < S::Words; ++j) {
            pages[j] = paged ? page_of(args, w, table_of(args, w), j * S::Threads + thread) : 0;
        }
        if (in.count <= in.wanted) {
#pragma unroll
            for (int j = 0; j < S::Words; ++j) {
                won.word[j] |= inside.word[j];
            }
        } else if (in.tied) {
            take_first(inside, in.wanted, won);
        } else {
            take_best(scores, inside, in.count, in.wanted, won);
        }
        u32 before[S::Words];
        const u32 written = count_before(won, before);  // the scores are not read after this
        i32* staged = reinterpret_cast<i32*>(scores);
#pragma unroll
        for (int j = 0; j < S::Words; ++j) {
            stage_word(args, w, j * S::Threads + thread, won.word[j], paged, pages[j], staged, before[j]);
        }
        for (u32 i = written + thread; i < k; i += S::Threads) {
            staged[i] = -1;
        }
        if (args.counts && thread == 0) {
            args.counts[v] = written;
        }
        sync();
        store_staged<S::Threads>(args, v, staged, thread);
    }

    __device__ void run() {
        if (threadIdx.x < S::Slots) {
            ptx::barrier_init(ptx::shared_address(&shared.arrived[threadIdx.x]), 1);
            ptx::barrier_init(ptx::shared_address(&shared.emptied[threadIdx.x]), S::Warps);
        }
        ptx::barrier_init_fence();
        if (team < S::Teams) {
            for (u32 i = thread; i < S::Bins; i += S::Threads) {
                mine.bins[i] = 0;
            }
        }
        __syncthreads();
        ptx::wait_for_previous_kernel();
        if (team == S::Teams) {
            fill();
            return;
        }
        const u32 count = rows();
        for (u32 i = team; i < count; i += S::Teams) {
            const u32 slot = i % S::Slots;
            const i32 v = blockIdx.x + i * gridDim.x;
            ptx::barrier_wait(ptx::shared_address(&shared.arrived[slot]), i / S::Slots & 1);
            const Row& w = shared.rows[slot];  // each field is read when it is needed, because there are few registers
            if (w.whole) {
                write_whole<S::Threads>(args, v, w, thread);
            } else {
                select_row(v, w, shared.slots[slot]);
            }
            ptx::fence_async_proxy();  // orders the writes of these threads before the next copy to this slot
            __syncwarp();
            if (lane == 0) {
                ptx::barrier_arrive(ptx::shared_address(&shared.emptied[slot]));
            }
        }
    }
};

}  // namespace sparrow_topk
