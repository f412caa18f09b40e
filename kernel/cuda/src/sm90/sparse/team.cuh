// Few rows: Team thread blocks, a cluster, share one unit of work, all keys of 64 heads of a row, with the bits of one
// thread block that has it alone (kernel.cuh, one segment).
//
// Each has 512 / Team of the output columns, of all blocks of keys, and the scores and weights of every Team-th block.
// Scores need no other block; what exponents are relative to needs only the largest scores of the blocks before, which
// all members tell each other (256 bytes a block). Weights go to all members. Every output element is then the same
// chain of products and factors as in one thread block, and every lane's part of a sum the same chain of sums. There
// are no parts of results and no combine.
//
// In:    as kernel.cuh, 656-byte or bf16 rows, one segment.
// Out:   bf16 [rows, heads * 512] with lse and max.
// Block: a cluster of Team per unit. One warpgroup computes scores and weights of own blocks, one the products of own
//        columns of all blocks, two fetch rows.
// Bytes: every selected row is read once per 64 heads, once more in slices of 512 / Team codes by all members
//        together, and 10 KB of weights and sums a block go to every other member.
#pragma once

#include "sm90/sparse/duo.cuh"
#include "sm90/sparse/team_copy.cuh"
#include "sm90/sparse/team_fetch.cuh"
#include "sm90/sparse/team_score.cuh"
#include "sm90/sparse/team_value.cuh"

namespace sparrow_sparse {

// A row without keys: own columns, and by the first member the numbers beside them.
template <int Team>
__device__ __forceinline__ void write_nothing(const SparseAttendArgs& args, const TeamUnit<Team>& unit) {
    constexpr i32 kChunks = kValues / Team / 8;
    for (i32 i = threadIdx.x; i < kHeads * kChunks; i += kTeamThreads) {
        const i32 head = unit.head + i / kChunks;
        if (head < args.heads) {
            u16* dst = args.out + unit.row * args.out_stride + static_cast<i64>(head) * kValues + unit.column();
            reinterpret_cast<uint4*>(dst)[i % kChunks] = make_uint4(0, 0, 0, 0);
            if (unit.rank == 0 && i % kChunks == 0) {
                write_stats(args, unit.row, head, kLowest, kLowest, 0.0f);
            }
        }
    }
}

// Fetch is the life of a fetching thread.
template <int Team, class Rows, class Fetch>
__device__ void attend_team(const SparseAttendArgs& args) {
    TeamStorage<Team>& shared = team_storage<Team>();
    if (threadIdx.x == 0) {
        team_init(shared, Rows::kMaskWriters);
    }
    __syncthreads();
    ptx::cluster_arrive();
    ptx::cluster_wait();  // the others' barriers are there
    ptx::wait_for_previous_kernel();
    TeamUnit<Team> unit(args);
    const u32 group = __shfl_sync(ptx::kFullMask, threadIdx.x / 128, 0);
    if (group >= 2) {
        ask_first<Rows::Tiles, kTeamFetchers>(args, unit.row, unit.head, 0, args.segment_blocks, threadIdx.x - 256);
    }
    unit.measure(args);
    if (unit.blocks == 0) {
        write_nothing(args, unit);
    } else if (group == 0) {
        ptx::registers_shrink<kTeamMathRegisters>();
        TeamScores<Rows, Team>(args, shared, unit).run();
    } else if (group == 1) {
        ptx::registers_shrink<kTeamMathRegisters>();
        TeamValues<Rows, Team>(args, shared, unit).run();
    } else {
        ptx::registers_grow<kTeamFetchRegisters>();
        Fetch{args, shared, unit, threadIdx.x - 256}.run();
        ptx::release_next_kernel();
    }
    __syncwarp();
    ptx::cluster_arrive();
    ptx::cluster_wait();  // nobody goes while another may still store into its memory
}

// 656-byte rows.
template <int Team>
__device__ __forceinline__ void attend_block_team(const SparseAttendArgs& args) {
    using Rows = ConvertedRows<BlockFormat, kTeamFetchers>;
    attend_team<Team, Rows, TeamFetch<Rows, Team>>(args);
}

// Rows of Tiles * 64 bf16 values.
template <int Tiles>
__device__ __forceinline__ void attend_copied_team(const SparseAttendArgs& args) {
    using Rows = TeamCopiedRows<Tiles>;
    attend_team<8, Rows, TeamCopy<Rows, 8>>(args);
}

}  // namespace sparrow_sparse
