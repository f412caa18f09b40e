// Sparse attention over rows of DeepSeek-V4.1 (shared_rows.cuh) for few query rows: a cluster of two thread blocks
// shares one unit of work, as in duo.cuh, but a thread block prepares keys of more blocks ahead.
//
// Each thread block has half of the output columns. Key blocks alternate between the two thread blocks. The owner of a
// key block converts all of its columns, computes the scores and weights, and sends the weights to the other thread
// block. Of a key block that the other thread block owns, a thread block converts only its own value columns. The value
// columns of three consecutive key blocks are in a ring. The other columns of an own key block are needed only for its
// scores, so their memory is free before the weights are computed. The next key block of a thread block is therefore
// converted while the weights of the previous one are computed and multiplied. In duo.cuh these steps follow each
// other.
//
// In:    as in kernel.cuh, two streams.
// Out:   the results of whole rows, or partial results of segments for combine.cuh. Each element is summed in the order
//        of kernel.cuh, and exponents and sums pass from key block to key block in order. Therefore results are bitwise
//        equal to those of kernel.cuh.
// Block: a cluster of two per unit. One warpgroup computes scores and weights of the key blocks that its thread block
//        owns, one computes the products of all key blocks, and two fetch rows.
// Bytes: every selected row is read once per 64 heads, and half of its bytes a second time.
#pragma once

#include "sm90/sparse/shared_duo_fetch.cuh"
#include "sm90/sparse/shared_duo_score.cuh"
#include "sm90/sparse/shared_duo_value.cuh"

namespace sparrow_sparse {

// Writes the results of a whole row without keys.
__device__ __forceinline__ void write_nothing(const SparseAttendArgs& args, const DuoUnit& unit, u32 group) {
    const Corner at;
    if (group == 1) {
        Unit u;
        u.row = unit.row;
        u.head = unit.head;
        write_zeros(args, u, at, unit.column());
    } else if (group == 0 && unit.rank == 0 && at.lane % 4 == 0) {
        for (i32 head = unit.head + at.row; head < min(unit.head + at.row + 9, args.heads); head += 8) {
            write_stats(args, unit.row, head, kLowest, kLowest, 0.0f);
        }
    }
}

__device__ __forceinline__ void attend_shared_duo(const SparseAttendArgs& args) {
    SharedDuoStorage& shared = shared_memory<SharedDuoStorage>();
    DuoUnit unit(args);
    const u32 group = __shfl_sync(ptx::kFullMask, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        shared_duo_init(shared);
    }
    __syncthreads();
    ptx::cluster_arrive();
    prefetch_first<2>(args, unit.row, unit.head, unit.block, unit.rank);
    ptx::cluster_wait();  // the barriers of the other thread block are initialised
    ptx::wait_for_previous_kernel();
    if (group >= 2) {
        SharedDuoFetch fetch{args, shared, unit, threadIdx.x - 256};
        fetch.load_lists();
        unit.measure<true>(args);
        ptx::registers_shrink<kDuoFetchRegisters>();
        fetch.run();
        ptx::release_next_kernel();
    } else {
        take_queries(args, shared, unit);
        unit.measure<true>(args);
        if (unit.blocks == 0) {
            if (args.segments == 1) {  // the combine kernel reads only segments that have keys
                write_nothing(args, unit, group);
            }
        } else if (group == 0) {
            ptx::registers_shrink<kDuoScoreRegisters>();
            SharedDuoScores(args, shared, unit).run();
        } else {
            ptx::registers_grow<kDuoValueRegisters>();
            SharedDuoValues{args, shared, unit}.run();
        }
    }
    __syncwarp();
    ptx::cluster_arrive();
    ptx::cluster_wait();  // a thread block may not exit while the other one still stores into its shared memory
}

}  // namespace sparrow_sparse
