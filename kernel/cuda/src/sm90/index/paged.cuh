// Paged index scores, for decode and verification: one to four query rows of every request against the request's
// pages of the index cache.
//
// In:    q e4m3 [requests, next_n, H, 128]; weights f32 [requests * next_n, H]; cache u8 [pages, 8448] (64 keys x 128
//        e4m3 bytes, then 64 f32 scales); block table i32 [tables, blocks]; context lengths i32 [requests, next_n]
//        (paged_args.h).
// Out:   f32 [requests * next_n, stride], column = logical position; nothing is written at or past a row's length.
// Block: one per SM, 640 threads. An item is a request. A block processes a contiguous range of (request, page) pairs
//        (share.cuh). Four warps copy pages into a ring of 16 stages. With up to 128 columns, the four
//        math warpgroups each take every fourth page. With 256 columns, two pairs of warpgroups take alternate pages,
//        and each warpgroup of a pair has half of the columns.
// Bytes: every page is read once for all next_n rows: 132 B per key, plus 4 * next_n B of scores.
// H200:  64 heads, 64 x 32k, next_n 1 / 2 / 4: 75 / 81 / 124 us; 128 x 64k: 283 / 298 us, 4.0 TB/s. Copies alone take
//        258 us; writing the scores costs 20 us more (NOTES.md).
#pragma once

#include "sm90/index/paged_args.h"
#include "sm90/index/score.cuh"

namespace sparrow_index {

struct PagedSource {
    const IndexPagedArgs& args;

    __device__ __forceinline__ i32 length(i32 request, i32 j) const {
        const i32 columns = min(static_cast<i64>(args.max_context), static_cast<i64>(args.max_blocks) * kTileKeys);
        const i32 keys = min(args.context_lengths[static_cast<i64>(request) * args.next_n + j], columns);
        return keys > args.skip ? max(keys, 0) : 0;
    }

    // Returns the maximum number of pages over the rows of a request.
    __device__ __forceinline__ u32 operator()(i32 request) const {
        i32 longest = 0;
        for (i32 j = 0; j < args.next_n; ++j) {
            longest = max(longest, length(request, j));
        }
        return (longest + kTileKeys - 1) / kTileKeys;
    }
};

// Reads the page numbers of a request, 32 at a time, with the next 32 loaded ahead of use. Each warp has one reader.
struct PageReader {
    const i32* table;
    i32 last;  // index of the last page-table entry that may be read
    u32 lane;
    i32 base;  // index of the page-table entry of lane 0
    i32 now, ahead;

    __device__ __forceinline__ PageReader(const i32* row, i32 first, i32 pages)
        : table(row + first), last(pages - 1), lane(threadIdx.x % 32), base(0), now(read(0)), ahead(read(32)) {}

    __device__ __forceinline__ i32 read(i32 from) const { return table[min(from + static_cast<i32>(lane), last)]; }

    // Returns the page of tile t. t never decreases, and increases by less than 32.
    __device__ __forceinline__ i32 page(i32 t) {
        if (t - base >= 32) {
            base += 32;
            now = ahead;
            ahead = read(base + 32);
        }
        return __shfl_sync(ptx::kFullMask, now, t - base);
    }
};

// One of the four copy warps. Each takes every fourth tile of the block's share, because a single warp cannot issue the
// copies fast enough: math warps use the same issue slots. The first warp also writes the records of items.
template <class S>
__device__ void paged_copy(const IndexPagedArgs& args, Storage<S>& shared, Share share, i32 worker) {
    const u32 lane = threadIdx.x % 32;
    const PagedSource source{args};
    Cursor<kItemStages> items;
    i64 left = share.count;
    const i32 columns = args.next_n * S::Heads;
    u32 tile_count = worker;  // number of this warp's next tile in the share of the thread block
    i32 t = worker;           // number of this warp's next tile in the item
    for (i32 item = share.item, skip = share.tile; left > 0; ++item, skip = 0) {
        const i32 length = lane < static_cast<u32>(args.next_n) ? source.length(item, lane) : 0;
        const i32 pages = (ptx::warp_max_signed(length) + kTileKeys - 1) / kTileKeys;
        const i32 tiles = static_cast<i32>(min(static_cast<i64>(pages - skip), left));
        if (tiles <= 0) {
            continue;
        }
        const i32 table_row = args.table_rows ? args.table_rows[static_cast<i64>(item) * args.next_n] : item;
        PageReader reader(args.block_table + table_row * args.table_stride, skip, tiles);
        if (worker == 0) {
            ptx::barrier_wait(ptx::shared_address(&shared.item_empty[items.stage]), items.parity ^ 1);
            Record& record = shared.records[items.stage];
            if (lane < S::Rows) {
                record.origin[lane] = 0;
                record.lo[lane] = 0;
                record.hi[lane] = length;
            }
            const u32 bar = ptx::shared_address(&shared.item_full[items.stage]);
            if (lane == 0) {
                record.item = item;
                record.key = skip * kTileKeys;
                record.tiles = tiles;
                ptx::barrier_expect(bar, columns * (kHeadBytes + sizeof(float)));
                ptx::load_2d(ptx::shared_address(shared.query[items.stage]), &args.query_map, bar, 0, item * columns,
                    ptx::kEvictLast);
                ptx::load_bytes(ptx::shared_address(shared.weights[items.stage]),
                    args.weights + static_cast<i64>(item) * columns,
                                columns * sizeof(float), bar, ptx::kEvictLast);
            } else {
                ptx::barrier_arrive(bar);
            }
            items.advance(1);
        }
        for (; t < tiles; t += kCopyWarps, tile_count += kCopyWarps) {
            const i32 page = reader.page(t);
            const u32 stage = tile_count % S::KeyStages;
            if (lane == 0) {
                ptx::barrier_wait(ptx::shared_address(&shared.keys_empty[stage]), (tile_count / S::KeyStages & 1) ^ 1);
                const u32 full = ptx::shared_address(&shared.keys_full[stage]);
                ptx::barrier_expect(full, kTileBytes + kTileKeys * sizeof(float));
                ptx::load_3d(ptx::shared_address(shared.keys[stage]), &args.keys_map, full, 0, 0, page,
                    ptx::kEvictFirst);
                ptx::load_2d(ptx::shared_address(shared.scales[stage]), &args.scales_map, full, 0, page,
                    ptx::kEvictFirst);
            }
            __syncwarp();
        }
        t -= tiles;
        left -= tiles;
    }
    if (worker == 0) {  // writes the record that ends the work
        ptx::barrier_wait(ptx::shared_address(&shared.item_empty[items.stage]), items.parity ^ 1);
        if (lane == 0) {
            shared.records[items.stage].tiles = 0;
        }
        ptx::barrier_arrive(ptx::shared_address(&shared.item_full[items.stage]));
    }
}

template <class S>
__device__ void paged_scores(const IndexPagedArgs& args) {
    Storage<S>& shared = storage<S>();
    if (threadIdx.x == 0) {
        ptx::prefetch_map(&args.query_map);
        ptx::prefetch_map(&args.keys_map);
        ptx::prefetch_map(&args.scales_map);
        init_barriers(shared);
    }
    ptx::wait_for_previous_kernel();
    const PagedSource source{args};
    const Share share = find_share(source, args.requests, shared.scratch);
    const u32 group = __shfl_sync(ptx::kFullMask, threadIdx.x / 128, 0);
    if (group == kMathGroups) {
        ptx::registers_shrink<kCopyRegisters>();
        const i32 worker = __shfl_sync(ptx::kFullMask, threadIdx.x / 32 % 4, 0);
        if (worker < kCopyWarps) {
            paged_copy(args, shared, share, worker);
            ptx::release_next_kernel();
        }
    } else {
        ptx::registers_grow<kMathRegisters>();
        MathGroup<S>(shared, group).run(Output{args.scores, args.stride, args.next_n});
    }
}

}  // namespace sparrow_index
