// Sparse attention of absorbed queries over selected FP8 rows of a paged pool. held.cuh has the kernel for bf16 rows.
//
// In:    q bf16 [rows, heads * D]; pools of rows of D values, D = 576 (latent and rotary part) or 512 (V4); for each
//        row a list of slots and its length; V4 can have two lists (args.h).
// Out:   bf16 [rows, heads * 512] with lse and max, or partial results of segments for combine.cuh.
// Block: one per SM. A unit of work is 64 heads of a row over one segment of its keys; a block takes every gridDim-th
//        unit or, if rows are cut into segments, consecutive units. One warpgroup computes scores, softmax and half
//        of the output columns, one computes the other half, and one fetches rows into two buffers of 64 keys.
// Bytes: every selected row is read once per 64 heads.
// H200:  128 heads, top-k 2048: decode of 64 / 128 whole rows 82 / 155 us, 56 / 59 % of a large matrix product.
#pragma once

#include "sm90/sparse/convert.cuh"
#include "sm90/sparse/score.cuh"
#include "sm90/sparse/value.cuh"

namespace sparrow_sparse {

template <class R, class Rows>
__device__ void attend(const SparseAttendArgs& args) {
    Storage<Rows::Tiles>& shared = shared_memory<Storage<Rows::Tiles>>();
    if (threadIdx.x == 0) {
        init_barriers(shared, fetch_threads<Rows>());
    }
    __syncthreads();
    if constexpr (kEvery) {
        list_units(args, head_groups(args));  // lengths were written before the previous kernel
    }
    const u32 group = __shfl_sync(ptx::kFullMask, threadIdx.x / 128, 0);
    if constexpr (Rows::kMixed) {
        Rows::prefetch(args);
    }
    if (!kEvery || group < 2) {
        ptx::wait_for_previous_kernel();
    }
    if (group < 2) {
        Queries<Rows>::take_first(args, shared, threadIdx.x);
    }
    if (group == 0) {
        ptx::registers_grow<R::Score>();
        ScoreGroup<Rows>(args, shared).run();
    } else if (group == 1) {
        if constexpr (fetch_threads<Rows>() > kFetchers) {
            ptx::registers_grow<R::Value>();
        } else {
            ptx::registers_shrink<R::Value>();
        }
        ValueGroup<Rows>(args, shared).run();
    } else {
        ptx::registers_shrink<R::Fetch>();
        Rows::run(args, shared, threadIdx.x - 256);
        ptx::release_next_kernel();
    }
}

}  // namespace sparrow_sparse
