// Sparse attention for few rows: two thread blocks, a cluster, share one unit of work, so that it takes half as long.
//
// Each thread block has half of the output columns. Blocks of keys alternate between them. The owner of a block of
// keys fetches it completely, computes its scores and weights, and sends the weights to the other thread block. For
// the blocks that the other owns, it fetches only the columns that it multiplies. Every output element is the same
// chain of products as in one thread block, and exponents and sums pass from block to block in order. Therefore the
// bits are the same as those of kernel.cuh.
//
// In:    as in kernel.cuh, rows of one stream and nine tiles, cut into segments.
// Out:   partial results of segments for combine.cuh.
// Block: a cluster of two per unit. One warpgroup computes scores and weights of its own blocks, one the products of
//        all blocks, and two fetch rows. With this many threads there are too few registers at launch for products of
//        256 columns, so they are done in halves.
// Bytes: every selected row is read once per 64 heads, and half of it a second time.
// H200:  128 heads, top-k 2048: one row takes 21.3 us including its combine, against 27.4 us with one thread block
//        per unit.
#pragma once

#include "sm90/sparse/duo_fetch.cuh"
#include "sm90/sparse/duo_score.cuh"
#include "sm90/sparse/duo_value.cuh"

namespace sparrow_sparse {

// Prefetches into L2 the data that is needed for any length of the row: its list, from block `from` to `to`, and its
// queries.
template <int Tiles, int Fetchers>
__device__ __forceinline__ void ask_first(const SparseAttendArgs& args, i32 row, i32 head, i32 from, i32 to, u32 t) {
    constexpr i32 kLine = 128, kQueryBytes = Tiles * 128;
    const SelectionView& s = args.streams[0];
    const i32 position = from * kKeys + static_cast<i32>(t) * (kLine / 4);
    if (!kEvery && position < min(s.width, to * kKeys)) {
        ptx::prefetch_line(s.indices + row * s.index_stride + position);
    }
    const u8* q = reinterpret_cast<const u8*>(args.q + row * args.q_stride) + static_cast<i64>(head) * kQueryBytes;
    const i32 bytes = min(args.heads - head, kHeads) * kQueryBytes;
    for (i32 at = static_cast<i32>(t) * kLine; at < bytes; at += Fetchers * kLine) {
        ptx::prefetch_line(q + at);
    }
}

template <class Format>
__device__ void attend_duo(const SparseAttendArgs& args) {
    using Rows = ConvertedRows<Format, kDuoFetchers>;
    DuoStorage& shared = shared_memory<DuoStorage>();
    if (threadIdx.x == 0) {
        duo_init(shared);
    }
    __syncthreads();
    ptx::cluster_arrive();
    ptx::cluster_wait();  // the other's barriers are there
    ptx::wait_for_previous_kernel();
    DuoUnit unit(args);
    const u32 group = __shfl_sync(ptx::kFullMask, threadIdx.x / 128, 0);
    if (group >= 2) {
        ask_first<DuoStorage::kTiles, kDuoFetchers>(args, unit.row, unit.head, unit.block,
            unit.block + args.segment_blocks, threadIdx.x - 256);
    }
    unit.measure(args);
    if (unit.blocks == 0) {  // the combine looks only at segments that have keys
    } else if (group == 0) {
        ptx::registers_shrink<kDuoScoreRegisters>();
        DuoScores<Rows>(args, shared, unit).run();
    } else if (group == 1) {
        ptx::registers_grow<kDuoValueRegisters>();
        DuoValues<Rows>(args, shared, unit).run();
    } else {
        ptx::registers_shrink<kDuoFetchRegisters>();
        DuoFetch<Rows>{args, shared, unit, threadIdx.x - 256}.run();
        ptx::release_next_kernel();
    }
    __syncwarp();
    ptx::cluster_arrive();
    ptx::cluster_wait();  // nobody goes while the other may still store into its memory
}

}  // namespace sparrow_sparse
