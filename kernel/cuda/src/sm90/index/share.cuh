// The schedule: every block works out for itself which contiguous run of key tiles is its own. Items lie end to end
// on a line of tiles; block b of G takes tiles [b*total/G, (b+1)*total/G), so shares differ by one tile at most, an
// empty item costs nothing, and there is no table that could be stale or too small.
#pragma once

#include "ptx/warp.cuh"
#include "sm90/index/config.h"

namespace sparrow_index {

// Where a block starts and how many tiles it owns.
struct Share {
    i32 item;   // first item
    i32 tile;   // first tile inside it
    i64 count;  // tiles, possibly over many items; 0 when there is nothing to do
};

// Scratch of find_share in shared memory.
struct ShareScratch {
    u64 warp_totals[kThreads / 32];
    Share share;
};

// find_share is called by all threads of the block. tiles_of(item) must be cheap: it is called once per item and once
// more inside the run of items that one thread searches.
template <class TilesOf>
__device__ Share find_share(const TilesOf& tiles_of, i32 items, ShareScratch& scratch) {
    const u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const i32 run = (items + kThreads - 1) / kThreads;
    const i32 first = min(static_cast<i64>(thread) * run, static_cast<i64>(items));
    const i32 last = min(first + run, items);

    u64 own = 0;
    for (i32 i = first; i < last; ++i) {
        own += tiles_of(i);
    }
    u64 upto = own;  // inclusive prefix over the warp
#pragma unroll
    for (u32 d = 1; d < 32; d *= 2) {
        u64 below = __shfl_up_sync(ptx::kFullMask, upto, d);
        upto += lane >= d ? below : 0;
    }
    if (lane == 31) {
        scratch.warp_totals[warp] = upto;
    }
    if (thread == 0) {
        scratch.share = Share{0, 0, 0};
    }
    __syncthreads();

    u64 before = upto - own, total = 0;
    for (u32 w = 0; w < kThreads / 32; ++w) {
        u64 t = scratch.warp_totals[w];
        before += w < warp ? t : 0;
        total += t;
    }
    const u64 begin = total * blockIdx.x / gridDim.x, end = total * (blockIdx.x + 1) / gridDim.x;
    if (begin < end && before <= begin && begin < before + own) {
        i32 item = first;
        u64 skip = begin - before;
        for (u32 t = tiles_of(item); skip >= t; t = tiles_of(item)) {
            skip -= t;
            ++item;
        }
        scratch.share = Share{item, static_cast<i32>(skip), static_cast<i64>(end - begin)};
    }
    __syncthreads();
    return scratch.share;
}

}  // namespace sparrow_index
