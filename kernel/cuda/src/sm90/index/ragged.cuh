// Ragged index scores, for prefill: every query row against its own contiguous range of keys.
//
// In:    q e4m3 [rows, H, 128]; keys e4m3 [keys, 128] with f32 scale each; weights f32 [rows, H]; key ranges i32
//        [rows] (ragged_args.h).
// Out:   f32 [rows, stride]: column c is key key_start + c (relative) or key c (absolute); nothing is written outside
//        a row's range.
// Block: one per SM, 640 threads. An item is 256 / H consecutive query rows (32 KB of q in shared memory); a block
//        computes a contiguous range of (item, tile) pairs. One warp copies tiles of 64 keys (8 KB + 256 B) into a ring
//        of 16 stages. Two pairs of math warpgroups take alternate tiles; each warpgroup of a pair has 128 columns.
// Bytes: keys are read once per item from L2, q once, scores are written once.
// H200:  64 heads, 4096 x 32k: 1254-1269 TFLOP/s with pauses between launches, 1157 back to back, when the power
//        limit lowers the clock. This is 76 and 70 % of 1650 TFLOP/s, the rate of the matrix instructions alone.
#pragma once

#include "sm90/index/ragged_args.h"
#include "sm90/index/score.cuh"

namespace sparrow_index {

// The keys that an item of the ragged kernel reads: the union of the ranges of its rows.
struct RaggedSpan {
    i32 begin, end;

    __device__ __forceinline__ i32 tiles() const { return end > begin ? (end - begin + kTileKeys - 1) / kTileKeys : 0; }
};

template <class S>
struct RaggedSource {
    const IndexRaggedArgs& args;

    __device__ __forceinline__ i32 items() const { return (args.rows + S::Rows - 1) / S::Rows; }

    __device__ __forceinline__ void range(i32 row, i32& lo, i32& hi) const {
        lo = hi = 0;
        if (row < args.rows) {
            lo = max(args.key_start[row], 0);
            const i32 end = args.key_end[row];
            hi = args.lengths ? lo + min(max(end, 0), max(args.keys - lo, 0)) : max(min(end, args.keys), lo);
            hi = hi - lo > args.skip ? hi : lo;
        }
    }

    // Returns the start of the tile of a key. The copy engine reads scales at multiples of 16 bytes. With absolute
    // columns, tiles start at multiples of 16 keys, so that a warp stores 64 adjacent bytes.
    __device__ __forceinline__ i32 align(i32 key) const { return key & (args.relative ? ~3 : ~15); }

    __device__ __forceinline__ RaggedSpan span(i32 item) const {
        i32 begin = 0x7FFFFFFF, end = 0;
        for (int j = 0; j < S::Rows; ++j) {
            i32 lo, hi;
            range(item * S::Rows + j, lo, hi);
            if (lo < hi) {
                begin = min(begin, lo);
                end = max(end, hi);
            }
        }
        return RaggedSpan{end > 0 ? align(begin) : 0, end};
    }

    __device__ __forceinline__ u32 operator()(i32 item) const { return span(item).tiles(); }
};

// The copy warp, which copies the key tiles and the items of the block's share to both rings.
template <class S>
__device__ void ragged_copy(const IndexRaggedArgs& args, Storage<S>& shared, Share share) {
    const u32 lane = threadIdx.x % 32;
    const RaggedSource<S> source{args};
    Cursor<kItemStages> items;
    Cursor<S::KeyStages> ring;
    i64 left = share.count;
    for (i32 item = share.item, skip = share.tile; left > 0; ++item, skip = 0) {
        const i32 row = item * S::Rows + static_cast<i32>(lane);
        i32 lo = 0, hi = 0;
        if (lane < S::Rows) {
            source.range(row, lo, hi);
        }
        const i32 end = ptx::warp_max_signed(hi > lo ? hi : 0);
        const i32 begin = ptx::warp_min_signed(hi > lo ? source.align(lo) : 0x7FFFFFFF);
        const i32 tiles = static_cast<i32>(min(static_cast<i64>(RaggedSpan{begin, end}.tiles() - skip), left));
        if (tiles <= 0) {
            continue;
        }
        const i32 first = begin + skip * kTileKeys;
        ptx::barrier_wait(ptx::shared_address(&shared.item_empty[items.stage]), items.parity ^ 1);
        Record& record = shared.records[items.stage];
        if (lane < S::Rows) {
            record.origin[lane] = args.relative ? lo : 0;
            record.lo[lane] = lo;
            record.hi[lane] = hi;
        }
        const u32 bar = ptx::shared_address(&shared.item_full[items.stage]);
        if (lane == 0) {
            record.item = item;
            record.key = first;
            record.tiles = tiles;
            const u32 weight_bytes = min(S::Rows, args.rows - item * S::Rows) * S::Heads * sizeof(float);
            ptx::barrier_expect(bar, S::Columns * kHeadBytes + weight_bytes);
            ptx::load_2d(ptx::shared_address(shared.query[items.stage]), &args.query_map, bar, 0, item * S::Columns,
                ptx::kEvictFirst);
            ptx::load_bytes(ptx::shared_address(shared.weights[items.stage]),
                args.weights + static_cast<i64>(item) * S::Columns,
                            weight_bytes, bar, ptx::kEvictFirst);
            for (i32 t = 0; t < tiles; ++t) {
                ptx::barrier_wait(ptx::shared_address(&shared.keys_empty[ring.stage]), ring.parity ^ 1);
                const u32 full = ptx::shared_address(&shared.keys_full[ring.stage]);
                ptx::barrier_expect(full, kTileBytes + kTileKeys * sizeof(float));
                ptx::load_2d(ptx::shared_address(shared.keys[ring.stage]), &args.keys_map, full, 0,
                    first + t * kTileKeys, ptx::kEvictLast);
                ptx::load_1d(ptx::shared_address(shared.scales[ring.stage]), &args.scales_map, full,
                    first + t * kTileKeys, ptx::kEvictLast);
                ring.advance(1);
            }
        } else {
            ptx::barrier_arrive(bar);
        }
        __syncwarp();
        items.advance(1);
        left -= tiles;
    }
    ptx::barrier_wait(ptx::shared_address(&shared.item_empty[items.stage]), items.parity ^ 1);
    if (lane == 0) {
        shared.records[items.stage].tiles = 0;  // ends the work
    }
    ptx::barrier_arrive(ptx::shared_address(&shared.item_full[items.stage]));
}

template <class S>
__device__ void ragged_scores(const IndexRaggedArgs& args) {
    Storage<S>& shared = storage<S>();
    if (threadIdx.x == 0) {
        ptx::prefetch_map(&args.query_map);
        ptx::prefetch_map(&args.keys_map);
        ptx::prefetch_map(&args.scales_map);
        init_barriers(shared);
    }
    ptx::wait_for_previous_kernel();
    const RaggedSource<S> source{args};
    const Share share = find_share(source, source.items(), shared.scratch);
    const u32 group = __shfl_sync(ptx::kFullMask, threadIdx.x / 128, 0);
    if (group == kMathGroups) {
        ptx::registers_shrink<kCopyRegisters>();
        if (threadIdx.x / 32 % 4 == 0) {
            ragged_copy(args, shared, share);
            ptx::release_next_kernel();
        }
    } else {
        ptx::registers_grow<kMathRegisters>();
        MathGroup<S>(shared, group).run(Output{args.scores, args.stride, S::Rows});
    }
}

}  // namespace sparrow_index
