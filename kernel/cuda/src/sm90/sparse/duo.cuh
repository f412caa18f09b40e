// Sparse attention for few rows: a cluster of two thread blocks shares one unit of work, to shorten its time.
//
// Each thread block has half of the output columns. Key blocks alternate between the two thread blocks. The owner of a
// key block fetches all of its columns, computes the scores and weights, and sends the weights to the other thread
// block. Of a key block that the other thread block owns, a thread block fetches only the columns that it multiplies.
// Each output element is summed in the order of kernel.cuh, and exponents and sums pass from key block to key block in
// order. Therefore outputs are bitwise equal to those of kernel.cuh.
//
// In:    as in kernel.cuh; rows of one stream are cut into segments.
// Out:   partial results of segments for combine.cuh, or the results of whole rows.
// Block: a cluster of two per unit. One warpgroup computes scores and weights of the key blocks that its thread block
//        owns, one computes the products of all key blocks, and two fetch rows. With 512 threads there are 128
//        registers per thread at launch, too few for a product of 256 columns, so two products of 128 columns are
//        computed.
// Bytes: every selected row is read once per 64 heads, and half of its bytes a second time.
// H200:  128 heads, top-k 2048: one row takes 21.3 us including its combine, compared with 27.4 us with one thread
//        block per unit.
#pragma once

#include "sm90/sparse/duo_fetch.cuh"
#include "sm90/sparse/duo_score.cuh"
#include "sm90/sparse/duo_value.cuh"

namespace sparrow_sparse {

// Prefetches into L2 the list entries of a row for key blocks [from, to), and its queries. These addresses are known
// before the length of the row is read. Two: also the whole list of the second stream.
template <int Tiles, int Fetchers, bool Two = false>
__device__ __forceinline__ void ask_first(const SparseAttendArgs& args, i32 row, i32 head, i32 from, i32 to, u32 t) {
    constexpr i32 kLine = 128, kQueryBytes = Tiles * 128;
    const SelectionView& s = args.streams[0];
    const i32 position = from * kKeys + static_cast<i32>(t) * (kLine / 4);
    if (!kEvery && position < min(s.width, to * kKeys)) {
        ptx::prefetch_line(s.indices + row * s.index_stride + position);
    }
    if constexpr (Two) {
        const SelectionView& more = args.streams[1];
        for (i32 at = static_cast<i32>(t) * (kLine / 4); at < more.width; at += Fetchers * (kLine / 4)) {
            ptx::prefetch_line(more.indices + row * more.index_stride + at);
        }
    }
    const u8* q = reinterpret_cast<const u8*>(args.q + row * args.q_stride) + static_cast<i64>(head) * kQueryBytes;
    const i32 bytes = min(args.heads - head, kHeads) * kQueryBytes;
    for (i32 at = static_cast<i32>(t) * kLine; at < bytes; at += Fetchers * kLine) {
        ptx::prefetch_line(q + at);
    }
}

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

template <class Format>
__device__ void attend_duo(const SparseAttendArgs& args) {
    using Rows = ConvertedRows<Format, kDuoFetchers>;
    DuoStorage& shared = shared_memory<DuoStorage>();
    if (threadIdx.x == 0) {
        duo_init(shared);
    }
    __syncthreads();
    ptx::cluster_arrive();
    ptx::cluster_wait();  // the barriers of the other thread block are initialised
    ptx::wait_for_previous_kernel();
    DuoUnit unit(args);
    const u32 group = __shfl_sync(ptx::kFullMask, threadIdx.x / 128, 0);
    if (group >= 2) {
        ask_first<Rows::Tiles, kDuoFetchers, Rows::kTwoStreams>(args, unit.row, unit.head, unit.block,
            unit.block + args.segment_blocks, threadIdx.x - 256);
    }
    unit.measure<Rows::kTwoStreams>(args);
    if (unit.blocks == 0) {  // the combine kernel reads only segments that have keys
        if (Rows::kTwoStreams && args.segments == 1) {
            write_nothing(args, unit, group);
        }
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
    ptx::cluster_wait();  // a thread block may not exit while the other one still stores into its shared memory
}

}  // namespace sparrow_sparse
