// Dense causal attention over expanded keys and values, for ragged prefill with any prefix.
//
// In:    q bf16 [rows, heads * (nope + 64)]; kv bf16 [keys, heads * (nope + values)]; rope bf16 [keys, 64]; for each
//        row its first key and its number of keys (args.h); a plan of tiles (plan.cuh).
// Out:   bf16 [rows, heads * values], f32 lse [rows, heads].
// Block: one per SM, persistent. Two math warpgroups have 64 query rows each (math.cuh); one warp issues copies and
//        one finds units (feed.cuh). Tiles of keys and of values are double-buffered. Masks are applied only to tiles
//        that extend beyond the keys of a row.
// Bytes: a tile of keys and values is read from L2 once per 128 rows and head.
// H200:  128 heads of 192/128, 8 x 2048 causal: 611 TFLOP/s, 77 % of a large matrix product; 64 heads, 2 x 8192: 699
//        TFLOP/s, 88 %.
#pragma once

#include "sm90/dense/feed.cuh"
#include "sm90/dense/math.cuh"

namespace sparrow_dense {

template <class S, int MathRegisters, int FeedRegisters>
__device__ __forceinline__ void attend(const DenseAttendArgs& args) {
    static_assert((2 * MathRegisters + FeedRegisters) * 128 <= 65536, "more registers than an SM has");
    Storage<S>& shared = storage<S>();
    if (threadIdx.x == 0) {
        ptx::prefetch_map(&args.query_map);
        ptx::prefetch_map(&args.key_map);
        ptx::prefetch_map(&args.rope_map);
        ptx::prefetch_map(&args.value_map);
        init_barriers(shared);
    }
    __syncthreads();
    ptx::wait_for_previous_kernel();
    const u32 warp = __shfl_sync(ptx::kFullMask, threadIdx.x / 32, 0);
    if (warp < 8) {
        ptx::registers_grow<MathRegisters>();
        MathGroup<S>(args, shared, warp / 4).run();
    } else {
        ptx::registers_shrink<FeedRegisters>();
        if (warp == 8) {
            if (threadIdx.x % 32 == 0) {
                load_units(args, shared);
            }
        } else if (warp == 9) {
            find_units(args, shared);
            ptx::release_next_kernel();
        }
    }
}

}  // namespace sparrow_dense
