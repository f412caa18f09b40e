// Top-k of few rows. Each row is distributed over the blocks of a cluster, so that few rows use all SMs. The contract
// is that of kernel.cuh.
//
// In:    scores f32 [rows, stride], lengths i32 [rows], optionally starts (args.h). A row has at most 16384 scores
//        per block of a cluster, including the leading scores of other rows.
// Out:   i32 [rows, k], positions or their transform, padded with -1.
// Block: 512 threads; a cluster of up to 8 blocks has one row, or one part of a row. Every warp has 1024 positions of
//        it, every thread 32.
// How:   1. While the scores arrive, every block computes the same interval from the same sample. It contains the
//           k-th largest score with a margin of five standard deviations on either side.
//        2. Scores above the interval have won; scores inside are counted in 512 bins. Blocks send each other their
//           bins and counts.
//        3. Scores in bins above that of the k-th largest have won, and the few in that bin are sent to the list of
//           every block.
//        4. The list is ranked exactly; winners are ranked by their positions and written in order.
//        If the interval is one value that many scores share (zeros after a relu), the lowest positions win and there
//        is no list. If the interval is wrong or the list is too long, the range is split exactly until the result is
//        decided. The interval affects only speed, never the result.
// Cost:  After its scores have arrived, a block executes one dependent chain of about 500 instructions, 4 to 5 clocks
//        each, and two exchanges with the other blocks. The time depends on the length of this chain.
// Bytes: each score is read once from global memory; k indices are written.
// H200:  64 rows x 32k, k 2048, paged: 7.3 us when launches overlap; one row of 128k: 7.1 us; one row of a million in
//        9 parts: 18 us.
#pragma once

#include "ptx/copy.cuh"
#include "sm90/topk/spread_part.cuh"

namespace sparrow_topk {

struct Spread : SpreadPart {
    using SpreadPart::SpreadPart;

    // ---- the interval
    // ---------------------------------------------------------------------------------------------------

    // Returns a quad of the n-th of `runs` runs of eight quads, which are evenly spaced over the row. In a short row
    // the runs are consecutive.
    __device__ __forceinline__ float4 quad_of(u32 n, u32 runs) const {
        const i32 quads = w.end() / 4 - 1;  // the first quad may hold scores of another row
        const i32 quad = quads > static_cast<i32>(8 * runs) ? n / 8 * ((quads - 8) / (runs - 1)) + n % 8 : n;
        const float none = minus_inf();
        return quad < quads ? reinterpret_cast<const float4*>(w.scores)[quad + 1] : make_float4(none, none, none, none);
    }

    // The scores from which the interval is estimated: a quad per lane that places the bins (common), equal in every
    // warp, and the sample.
    struct Look {
        float4 common, sample[kSampleQuads];
    };

    __device__ __forceinline__ Look look() const {
        Look l;
        l.common = quad_of(at.lane, 4);
#pragma unroll
        for (u32 i = 0; i < kSampleQuads; ++i) {
            l.sample[i] = quad_of(i * S::Threads + at.thread, kSampleQuads * S::Threads / 8);
        }
        return l;
    }

    // Returns the interval, and sets `fine` to the bins inside it. The bins cover the range of the sample; scores
    // beyond it are counted in the first or the last bin. It uses three barriers, while the scores arrive.
    __device__ __forceinline__ Interval guess(const Look& l, SampleBins<kFine>& fine) {
        const auto bins = place_bins<S::Bins>(l.common);
        if (bins.placed()) {
#pragma unroll
            for (u32 i = 0; i < kSampleQuads; ++i) {
                visit(l.sample[i], [&](float x) {
                    if (x > minus_inf()) {
                        atomicAdd(&shared.bins[bins.of(x)], 1u);
                    }
                });
            }
        }
        const Estimate estimate(args.k,
            fmaxf(__fdividef(static_cast<float>(w.length), 4.0f * kSampleQuads * S::Threads), 1.0f), 8.0f);
        sync();
        find_ranks(estimate);
        const Interval v = interval_between(bins, shared.guess[0], shared.guess[1], estimate, kMostInside);
        const float low = fmaxf(score_of(v.low), bins.low),
            high = v.high == kKeyInf ? bins.edge(shared.guess[1].bin + 2) : score_of(v.high);
        fine = SampleBins<kFine>{low, high - low, high > low ? __fdividef(1.0f, high - low) : 0.0f, 0};
        fine.shift = -low * fine.scale;
        return v;
    }

    // Finds the bins of both ranks of an estimate; the warp that holds a bin writes its result. It uses two barriers.
    __device__ __forceinline__ void find_ranks(const Estimate& e) {
        const u32 quad = S::Bins / 4 - 1 - at.thread;  // threads in descending order of bins
        const uint4 bins = reinterpret_cast<const uint4*>(shared.bins)[quad];
        const u32 own = bins.x + bins.y + bins.z + bins.w, total = ptx::warp_sum(own);
        if (at.lane == 0) {
            shared.bin_sums[at.warp] = total;
        }
        sync();
        const u32 before = ptx::warp_sum(at.lane < at.warp ? shared.bin_sums[at.lane] : 0);
        const u32 ranks[2] = {e.last(), e.best()};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (before < ranks[i] && ranks[i] <= before + total) {  // the condition is equal in all lanes
                BinRank r{quad * 4 + 3, before + ptx::warp_prefix(own, at.lane) - own, bins.w};
                if (r.above < ranks[i] && ranks[i] <= r.above + own) {
                    const u32 lower[3] = {bins.z, bins.y, bins.x};
#pragma unroll
                    for (int j = 0; j < 3; ++j) {
                        if (r.above + r.inside < ranks[i]) {
                            r = BinRank{r.bin - 1, r.above + r.inside, lower[j]};
                        }
                    }
                    shared.guess[i] = r;
                }
                __syncwarp();
            }
        }
        sync();
    }

    // ---- exact splitting of the scores inside (slow path) 
    // ---------------------------------------------------------------------

    // Writes `value` to address `place` of the shared memory of every block of the cluster; each of the first lanes
    // writes to one block.
    __device__ __forceinline__ void everywhere(const u32* place, u32 value) const {
        if (at.lane < blocks) {
            ptx::peer_store(ptx::peer_address(ptx::shared_address(place), at.lane), value);
        }
        __syncwarp();
    }

    // Returns the smallest key, the largest key and the number of keys inside, over all blocks. It uses one cluster
    // barrier.
    __device__ __forceinline__ Extent extent() {
        Extent e{~0u, 0, 0};
        each_inside([&](u32 bit, float score) {
            if (score > minus_inf()) {
                const u32 key = key_of(score);
                e = Extent{min(e.low, key), max(e.high, key), e.count + 1};
            } else {
                inside ^= bit;
            }
        });
        __syncwarp();
        Extent& mine = shared.extents[cluster_warp()];
        everywhere(&mine.low, ~ptx::warp_max(~e.low));
        everywhere(&mine.high, ptx::warp_max(e.high));
        everywhere(&mine.count, ptx::warp_sum(e.count));
        ptx::cluster_sync();
        e = Extent{~0u, 0, 0};
#pragma unroll 1
        for (u32 i = at.lane; i < blocks * S::Warps; i += 32) {
            const Extent& other = shared.extents[i];
            e = Extent{min(e.low, other.low), max(e.high, other.high), e.count + other.count};
        }
        return Extent{~ptx::warp_max(~e.low), ptx::warp_max(e.high), ptx::warp_sum(e.count)};
    }

    // Splits the range of the whole row until the scores inside fit the list, or until the result is decided; in that
    // case the returned bin is empty.
    __device__ SpreadBin refine(bool busy) {
        const u32 k = args.k;
        won = above = 0;
        inside = busy ? ~0u : 0;
        for (;;) {
            const Extent e = extent();
            if (above + e.count <= k) {
                won |= inside;
                above += e.count;
                break;
            }
            Told& own = shared.told[rank];
            own.bins[at.thread] = 0;
            if (at.lane == 0) {
                own.counts[at.warp] = 0;
            }
            sync();
            const KeyRange range{e.low, e.high};
            const u32 shift = range.template shift<S>();
            each_inside([&](u32, float score) { atomicAdd(&own.bins[(key_of(score) - e.low) >> shift], 1u); });
            __syncwarp();
            const u32 total = ptx::warp_sum(__popc(inside));
            if (at.lane == 0) {
                own.counts[at.warp] = total << 16;
            }
            tell();
            if (e.low == e.high) {
                u32 none, before;
                counts(cluster_warp(), none, before);
                const u32 count = __popc(inside);
                won |= first_bits(inside, before + ptx::warp_prefix(count, at.lane) - count, k - above);
                above = k;
                break;
            }
            const SpreadBin found = find(k - above);
            each_inside([&](u32 bit, float score) {
                const u32 bin = (key_of(score) - e.low) >> shift;
                won |= bin > found.bin ? bit : 0;
                inside ^= bin != found.bin ? bit : 0;
            });
            __syncwarp();
            above += found.above;
            if (found.inside <= kShort) {
                return found;
            }
        }
        inside = 0;
        return SpreadBin{0, 0, 0, 0, 0};
    }

    // ---- winners
    // --------------------------------------------------------------------------------------------------------

    // Sends the winners of this warp and its candidates of bin b to every block, and waits for those of all blocks.
    __device__ __forceinline__ void list(const SpreadBin& b) {
        const u32 complete = ptx::shared_address(&shared.complete), count = ptx::warp_sum(__popc(won));
        if (at.thread == 0) {
            ptx::barrier_expect(complete, (blocks - 1) * S::Warps * sizeof(u32) + (b.inside - b.own) * sizeof(u64));
        }
        if (at.lane < blocks) {
            u32* place = &shared.won[cluster_warp()];
            if (at.lane == rank) {
                *place = count;
            } else {
                ptx::peer_send(ptx::peer_address(ptx::shared_address(place), at.lane), count,
                    ptx::peer_address(complete, at.lane));
            }
        }
        each_inside([&](u32 bit, float score) {
            const u64 c = candidate(key_of(score), word() * 32 + __ffs(bit) - 1);
            u64* place = &shared.list[b.first + atomicAdd(&shared.listed, 1u)];
            *place = c;
#pragma unroll 1
            for (u32 d = 1; d < blocks; ++d) {
                const u32 peer = rank + d < blocks ? rank + d : rank + d - blocks;
                ptx::peer_send(ptx::peer_address(ptx::shared_address(place), peer), c,
                    ptx::peer_address(complete, peer));
            }
        });
        sync();
        ptx::barrier_wait(complete, 0);
    }

    // Cuts the list to the candidates that win and returns the number of winners before this warp's positions.
    __device__ __forceinline__ u32 cut(const SpreadBin& b) {
        u32 sum = 0;
#pragma unroll 1
        for (u32 i = at.lane; i < cluster_warp(); i += 32) {
            sum += shared.won[i];
        }
        u32 before = ptx::warp_sum(sum);
        if (b.inside > 0) {
            const u32 wanted = args.k - above;
            const u64 c = at.lane < b.inside ? shared.list[at.lane] : 0;
            u32 greater = 0;
            for (u32 i = 0; i < b.inside; ++i) {
                greater += shared.list[i] > c;
            }
            const bool wins = at.lane < b.inside && greater < wanted;
            before += __popc(__ballot_sync(ptx::kFullMask, wins && ~static_cast<u32>(c) < slice * kSlice));
            // The smallest winner is a list entry.
            const u32 least = __ffs(__ballot_sync(ptx::kFullMask, wins && greater == wanted - 1)) - 1;
            each_inside([&](u32 bit, float score) {
                won |= candidate(key_of(score), word() * 32 + __ffs(bit) - 1) >= shared.list[least] ? bit : 0;
            });
            __syncwarp();
            above += min(b.inside, wanted);
        }
        return before;
    }

    // Writes the winners; `before` of them come before this warp's positions. If `paged` is set, `page` is the page
    // of this thread's word.
    __device__ __forceinline__ void write(i32 v, u32 before, bool paged, i32 page) {
        const u32 own = __popc(won);
        const u32 to = before + ptx::warp_prefix(own, at.lane) - own;
        const i32 place = word() * 32 - w.head, slot = page << args.page_shift | (place & ((1 << args.page_shift) - 1));
        i32* out = args.out + static_cast<i64>(v) * args.k + to;
        if (paged) {
#pragma unroll 1
            for (u32 left = won; left; left &= left - 1) {
                *out++ = slot + __ffs(left) - 1;
            }
        } else {
#pragma unroll 1
            for (u32 left = won; left; left &= left - 1) {
                *out++ = transformed(args, w, place + __ffs(left) - 1);
            }
        }
        if (args.kept) {
            float* kept = args.kept + static_cast<i64>(v) * args.k + to;
            for (u32 left = won; left; left &= left - 1) {
                *kept++ = own_scores()[__ffs(left) - 1];
            }
        }
        if (rank == 0) {
            finish_row<S::Threads>(args, v, above);
        }
    }

    // ---- a row
    // ----------------------------------------------------------------------------------------------------------

    // Initialises barriers and clears memory. Afterwards the cluster barrier has been arrived at and must be waited
    // for.
    __device__ __forceinline__ void init() {
        if (at.lane == 0) {
            ptx::barrier_init(ptx::shared_address(&shared.arrived[at.warp]), 1);
            if (at.warp == 0) {
                ptx::barrier_init(ptx::shared_address(&shared.heard), 1);
                ptx::barrier_init(ptx::shared_address(&shared.complete), 1);
                shared.listed = 0;
                shared.guess[0] = shared.guess[1] = BinRank{0, 0, 0};
            }
            ptx::barrier_init_fence();
        }
        __syncwarp();
        ptx::cluster_arrive();
        clear_bins(shared, at);
        shared.told[rank].bins[at.thread] = 0;
    }

    // Overwrites the scores before and after the row in this thread's word, so that later code need not check
    // positions.
    __device__ __forceinline__ void blank() {
        const u32 foreign = ~valid_places(w, word());
        if (foreign) {
            float* scores = own_scores();
#pragma unroll 1
            for (u32 j = 0; j < 32; ++j) {
                const u32 i = (j + at.lane) % 32;
                if (foreign >> i & 1) {
                    scores[i] = minus_inf();
                }
            }
        }
    }

    // Decides which scores of this thread's word win and returns the number of winners before this warp's positions.
    __device__ __forceinline__ u32 decide(const Interval& v, const SampleBins<kFine>& fine, bool busy, bool sure) {
        const u32 k = args.k;
        const bool tied = v.low == v.high;
        if (busy && sure) {
            scan_word(own_scores(), at.lane, v, won, inside);
            if (!tied) {
                each_inside([&](u32, float score) { atomicAdd(&shared.told[rank].bins[fine.of(score)], 1u); });
            }
            __syncwarp();
        }
        SpreadBin bin{0, 0, 0, 0, 0};
        if (sure) {
            const u32 own = ptx::warp_sum(__popc(won) | __popc(inside) << 16);
            if (at.lane == 0) {
                shared.told[rank].counts[at.warp] = own;
            }
            tell();
            u32 within;
            counts(blocks * S::Warps, above, within);
            sure = above <= k && (above + within >= k || v.low <= kLowestKey);
            if (sure && (tied || above + within <= k)) {
                const u32 wanted = min(k - above, within), count = __popc(inside);
                u32 over_before, before;
                counts(cluster_warp(), over_before, before);
                won |= first_bits(inside, before + ptx::warp_prefix(count, at.lane) - count, wanted);
                above += wanted;
                return over_before + min(before, wanted);
            }
            if (sure && above < k) {
                bin = find(k - above);
                each_inside([&](u32 bit, float score) {
                    const u32 b = fine.of(score);
                    won |= b > bin.bin ? bit : 0;
                    inside ^= b != bin.bin ? bit : 0;
                });
                __syncwarp();
                above += bin.above;
                sure = bin.inside <= kShort;
            } else {
                inside = 0;
            }
        }
        if (!sure) {
            bin = refine(busy);
        }
        list(bin);
        return cut(bin);
    }

    __device__ void run() {
        ptx::wait_for_previous_kernel();
        const i32 v = blockIdx.x / blocks;
        const RowFacts facts = facts_of(args, v);
        init();  // runs while length and start of the row are being loaded
        w = row_from(args, facts);
        if (w.whole) {
            ptx::cluster_wait();
            if (rank == 0) {
                write_whole<S::Threads>(args, v, w);
            }
            return;
        }
        const Look seen = look();
        // slices is the number of slices of the row, each the number of slices per block.
        const u32 slices = (w.end() + kSlice - 1) / kSlice, each = (slices + blocks - 1) / blocks;
        slice = rank * each + at.warp;
        const bool busy = at.warp < each && slice < slices;
        const u32 arrived = ptx::shared_address(&shared.arrived[at.warp]);
        slice = busy ? slice : kSpreadBlocks * S::Warps;  // a slice beyond every position
        const bool paged = words_in_pages(args, w);
        const i32 page = paged && busy ? page_of(args, w, table_of(args, w), word()) : 0;
        if (busy && at.lane == 0) {
            const i32 from = slice * kSlice;
            const u32 bytes = ((min(w.end() - from, kSlice) + 3) & ~3) * sizeof(float);
            ptx::barrier_expect(arrived, bytes);
            ptx::load_bytes(ptx::shared_address(shared.scores[at.warp]), w.scores + from, bytes, arrived,
                ptx::kEvictFirst);
        }
        sync();  // the bins are cleared
        SampleBins<kFine> fine;
        const Interval interval = guess(seen, fine);
        ptx::release_next_kernel();
        __syncwarp();
        ptx::cluster_wait();
        if (busy) {
            ptx::barrier_wait(arrived, 0);
            blank();
        }
        write(v, decide(interval, fine, busy, !interval.refine), paged, page);
    }
};

}  // namespace sparrow_topk
