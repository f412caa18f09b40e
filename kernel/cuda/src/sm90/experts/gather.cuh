// Gathers the quantised rows in the order of their experts, before the matrix products of wide.cuh.
//
// In:    codes and scales of x, the sorted order and the list of experts (prepare.cuh).
// Out:   codes and scales in the layout of Placed.
// Block: 256 threads. A warp gathers some blocks of k of eight rows of an expert; gridDim.y warps share these rows, so
//        that the work of the SMs is balanced.
// Bytes: a row is read and written once for each of its choices.
#pragma once

#include "sm90/experts/args.h"
#include "smxx/base.h"

namespace sparrow_experts {

constexpr i32 kPlacedGroup = 256;  // maximum rows of a group

// Rows as stages of wide.cuh load them. Rows are ordered by expert, and the rows of an expert begin at a multiple of 8.
// A group is up to 256 rows of an expert. Its rows, rounded up to a multiple of 8, are stored block by block of k:
//
//     codes    [blocks, rows, 128], swizzled: 16-byte chunk c of row r is at chunk c ^ (r % 8)
//     scales   [blocks, rows]
struct Placed {
    u8* codes;
    float* scales;
};

// Returns the number of rows of memory for all groups.
__device__ __forceinline__ i64 placed_rows(const ExpertsArgs& args) {
    return static_cast<i64>(args.rows) * args.top + 8 * args.experts;
}

// Returns the first row of memory of entry i of the list of experts, whose first place in the sorted order is `first`.
// Between two entries there is room for rounding up the rows of the first one.
__device__ __forceinline__ i32 placed_first(i32 first, i32 i) { return (first + 8 * i) & ~7; }

__device__ __forceinline__ i32 round_up_8(i32 rows) { return (rows + 7) & ~7; }

// The gathered rows of x. They are in the memory of the results, which are written after gate and up have read them.
__device__ __forceinline__ Placed placed_x(const ExpertsArgs& args) {
    u8* codes = reinterpret_cast<u8*>(args.results);
    return {codes, reinterpret_cast<float*>(codes + placed_rows(args) * args.hidden_blocks * 128)};
}

__device__ __forceinline__ void gather(const ExpertsArgs& args) {
    ptx::wait_for_previous_kernel();
    const i32 eight = static_cast<i32>(warp_row()) * 8, lane = lane_id(), listed = args.totals[0];
    i32 at = 0;  // the last entry that does not begin after these eight rows
    for (i32 after = listed; after - at > 1;) {
        const i32 middle = (at + after) / 2;
        (placed_first(args.list[middle].first, middle) <= eight ? at : after) = middle;
    }
    const ListedView expert = args.list[at];
    const i32 base = placed_first(expert.first, at), skip = eight - base;
    if (listed == 0 || skip >= expert.count) {
        return;
    }
    const i32 group = skip / kPlacedGroup * kPlacedGroup, blocks = args.hidden_blocks;
    const i32 share = (blocks + gridDim.y - 1) / gridDim.y;
    const i32 begin = share * blockIdx.y, end = min(blocks, begin + share);
    const i32 rows = round_up_8(min(kPlacedGroup, expert.count - group));
    const i32 own = skip + lane % 8;
    const i32 row = own < expert.count ? args.order[expert.first + own] / args.top : -1;
    const Placed to = placed_x(args);
    u8* codes = to.codes + static_cast<i64>(base + group) * blocks * 128 + (skip - group) * 128;
    float* scales = to.scales + static_cast<i64>(base + group) * blocks + (skip - group);
    const i32 upper = __shfl_sync(ptx::kFullMask, row, lane / 8);
    const i32 lower = __shfl_sync(ptx::kFullMask, row, lane / 8 + 4);
    const i32 chunk = lane % 8;
    constexpr i32 kAhead = 4;  // blocks that are loaded together
    for (i32 first = begin; first < end; first += kAhead) {
        uint4 v[2 * kAhead];
#pragma unroll
        for (i32 i = 0; i < 2 * kAhead; ++i) {
            const i32 byte = (first + i / 2) * 128 + chunk * 16, from = i % 2 == 0 ? upper : lower;
            v[i] = make_uint4(0, 0, 0, 0);
            if (from >= 0 && first + i / 2 < end && byte < args.hidden) {
                v[i] = *reinterpret_cast<const uint4*>(args.codes + static_cast<i64>(from) * args.hidden_pitch + byte);
            }
        }
#pragma unroll
        for (i32 i = 0; i < 2 * kAhead; ++i) {
            const i32 block = first + i / 2, r = lane / 8 + i % 2 * 4;
            if (block < end) {
                *reinterpret_cast<uint4*>(codes + (static_cast<i64>(block) * rows + r) * 128 + ((chunk ^ r) << 4)) =
                    v[i];
            }
        }
    }
    for (i32 block = begin + lane / 8; block < end; block += 4) {
        scales[block * rows + lane % 8] =
            row < 0 ? 0.0f : args.code_scales[static_cast<i64>(row) * blocks + block];
    }
}

}  // namespace sparrow_experts
