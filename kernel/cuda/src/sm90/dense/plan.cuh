// Assigns rows to tiles. Consecutive rows with the same first key form a run; a run is cut into tiles of 128 rows.
//
// In:    start i32 [rows, start_stride].
// Out:   plan: words {next unit, tiles, 0, 0}, then a record for each tile and a last record whose row is the number
//        of rows.
// Block: one, 1024 threads. Each thread reads a range of adjacent rows three times, about 16 bytes per row in all.
#pragma once

#include "ptx/warp.cuh"
#include "sm90/dense/config.h"

namespace sparrow_dense {

// A tile of rows, from `row` to the row of the next record, exclusive.
struct TileRecord {
    i32 row;
    i32 first;  // number of the first tile of its run
    i32 count;  // tiles of its run; set only in the first tile of a run
    i32 unused;
};
static_assert(sizeof(TileRecord) == 16, "as the launcher allocates");

struct Plan {
    u32 next;   // number of units taken from the counter, in addition to the first unit of every thread block
    i32 tiles;
    u32 unused[2];

    __device__ __forceinline__ TileRecord* tile(i32 t) { return reinterpret_cast<TileRecord*>(this + 1) + t; }
};
static_assert(sizeof(Plan) == 16, "as the launcher allocates");

constexpr int kPlanThreads = 1024;

// Block-wide exclusive scan: returns the maximum, or the sum, of the values of all lower threads. total gets the result
// over all threads.
template <bool Sum>
__device__ __forceinline__ i32 scan_before(i32 v, i32 none, i32 (&warps)[32], i32& total) {
    const i32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    i32 mine = v;
#pragma unroll
    for (i32 d = 1; d < 32; d *= 2) {
        const i32 below = __shfl_up_sync(ptx::kFullMask, mine, d);
        if (lane >= d) {
            mine = Sum ? mine + below : max(mine, below);
        }
    }
    if (lane == 31) {
        warps[warp] = mine;
    }
    __syncthreads();
    i32 before = none;
    total = none;
    for (i32 w = 0; w < kPlanThreads / 32; ++w) {
        if (w == warp) {
            before = total;
        }
        total = Sum ? total + warps[w] : max(total, warps[w]);
    }
    __syncthreads();
    const i32 left = __shfl_up_sync(ptx::kFullMask, mine, 1);
    const i32 inside = lane == 0 ? none : left;
    return Sum ? before + inside : max(before, inside);
}

__device__ __forceinline__ void plan_tiles(const DenseAttendArgs& args) {
    __shared__ i32 warps[32];
    const i32 rows = args.rows;
    const i32 share = (rows + kPlanThreads - 1) / kPlanThreads;
    const i32 begin = min(static_cast<i32>(threadIdx.x) * share, rows), end = min(begin + share, rows);
    Plan& plan = *reinterpret_cast<Plan*>(args.plan);
    const auto start = [&](i32 r) { return args.start[r * args.start_stride]; };
    const auto begins_run = [&](i32 r) { return r == 0 || start(r) != start(r - 1); };

    i32 total;
    i32 run = -1;  // first row of the run that contains row `begin` - 1
    for (i32 r = begin; r < end; ++r) {
        run = begins_run(r) ? r : run;
    }
    const i32 inherited = scan_before<false>(run, -1, warps, total);
    run = inherited;
    i32 tiles = 0;
    for (i32 r = begin; r < end; ++r) {
        run = begins_run(r) ? r : run;
        tiles += (r - run) % kUnitRows == 0;
    }
    i32 tile = scan_before<true>(tiles, 0, warps, total);
    run = inherited;
    for (i32 r = begin; r < end; ++r) {
        if (begins_run(r)) {
            if (r > 0) {  // the previous run ends here
                const i32 first = tile - 1 - (r - 1 - run) / kUnitRows;
                plan.tile(first)->count = tile - first;
            }
            run = r;
        }
        if ((r - run) % kUnitRows == 0) {
            plan.tile(tile)->row = r;
            plan.tile(tile)->first = tile - (r - run) / kUnitRows;
            ++tile;
        }
    }
    if (end == rows && begin < end) {  // this thread has the last row
        const i32 first = total - 1 - (rows - 1 - run) / kUnitRows;
        plan.tile(first)->count = total - first;
        plan.tile(total)->row = rows;
        plan.next = 0;
        plan.tiles = total;
    }
}

}  // namespace sparrow_dense
