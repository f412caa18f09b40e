// The schedule. The key tiles of all items are concatenated and divided evenly among the thread blocks: each computes a
// contiguous range of tiles, and their sizes differ by at most one. Every block computes its range itself, without a
// table in memory.
#pragma once

#include "ptx/warp.cuh"
#include "sm90/index/config.h"

namespace sparrow_index {

// The first tile of a thread block's share, and its number of tiles.
struct Share {
    i32 item;   // first item
    i32 tile;   // first tile inside the first item
    i64 count;  // number of tiles, possibly over many items; 0: no work
};

// Scratch of find_share in shared memory.
struct ShareScratch {
    u32 warp_totals[kThreads / 32];
    Share share;
};

// Returns the share of this thread block. All threads of the block must call it. tiles_of(item) is called once per
// item, and again for the items that one thread searches, so it must be fast.
template <class TilesOf>
__device__ Share find_share(const TilesOf& tiles_of, i32 items, ShareScratch& scratch) {
    const u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const i32 run = (items + kThreads - 1) / kThreads;
    const i32 first = min(static_cast<i64>(thread) * run, static_cast<i64>(items));
    const i32 last = min(first + run, items);

    u32 own = 0;  // no overflow: 2^32 tiles would write a terabyte of scores
    for (i32 i = first; i < last; ++i) {
        own += tiles_of(i);
    }
    const u32 upto = ptx::warp_prefix(own, lane);
    if (lane == 31) {
        scratch.warp_totals[warp] = upto;
    }
    if (thread == 0) {
        scratch.share = Share{0, 0, 0};
    }
    __syncthreads();

    const u32 of_warp = lane < kThreads / 32 ? scratch.warp_totals[lane] : 0;
    const u32 before = ptx::warp_sum(lane < warp ? of_warp : 0) + upto - own, total = ptx::warp_sum(of_warp);
    // The shares of the first `more` thread blocks have one tile more.
    const u32 each = total / gridDim.x, more = total - each * gridDim.x;
    const u32 begin = each * blockIdx.x + min(blockIdx.x, more), count = each + (blockIdx.x < more);
    if (count > 0 && before <= begin && begin - before < own) {
        i32 item = first;
        u32 skip = begin - before;
        for (u32 t = tiles_of(item); skip >= t; t = tiles_of(item)) {
            skip -= t;
            ++item;
        }
        scratch.share = Share{item, static_cast<i32>(skip), static_cast<i64>(count)};
    }
    __syncthreads();
    return scratch.share;
}

}  // namespace sparrow_index
