// The value group: columns 256-511 of the output.
#pragma once

#include "sm90/sparse/math.cuh"
#include "sm90/sparse/scout.cuh"

namespace sparrow_sparse {

// The value group multiplies a block only when the scores of the next one are almost complete. Its product then runs
// while the score group computes the softmax.
template <class Rows>
struct ValueGroup {
    using Type = typename Rows::Type;
    static constexpr int Tiles = Rows::Tiles;

    const SparseAttendArgs& args;
    Storage<Tiles>& shared;
    Corner at;
    u32 done = 0, units = 0;
    Scout<Rows> scout;

    __device__ __forceinline__ ValueGroup(const SparseAttendArgs& a, Storage<Tiles>& s) : args(a), shared(s) {}

    __device__ __forceinline__ void run_unit(const Unit& unit, i32 next_row, float (&o)[128]) {
#pragma unroll 1
        for (i32 left = unit.blocks - 1; left >= 0; --left, ++done) {
            const u32 b = done & 1, parity = done >> 1 & 1;
            ptx::barrier_wait(ptx::shared_address(&shared.weights_full[b]), parity);
            ptx::barrier_wait(ptx::shared_address(&shared.k_full[b][1]), parity);
            ptx::fence_async_proxy();
            const bool first = left == unit.blocks - 1;
            const float f0 = read(shared.factor[b][at.row]), f1 = read(shared.factor[b][at.row + 8]);
            if (!first && __any_sync(ptx::kFullMask, f0 != 1.0f || f1 != 1.0f)) {
                rescale(o, f0, f1);
            }
            if (first) {
                // These scores have already completed; the wait is only needed because every phase must be waited for.
                ptx::barrier_wait(ptx::shared_address(&shared.scores_done[b]), parity);
            }
            if (left > 0) {
                ptx::barrier_wait(ptx::shared_address(&shared.scores_done[b ^ 1]), (done + 1) >> 1 & 1);
            }
            const u64 p = ptx::operand_128b(shared.weights_at(b));
            const u64 v = ptx::operand_128b_across(ptx::shared_address(shared.k[b]) + kHalfTiles * kTileBytes,
                kTileBytes);
            ptx::mma_pin(o);
            ptx::mma_fence();
#pragma unroll
            for (int step = 0; step < 4; ++step) {
                multiply_values<Rows>(o, p + step * 2, v + step * 16 * 128 / 16, step > 0 || !first);
                if (Rows::kQuarters || step == 3) {
                    ptx::mma_commit();
                }
            }
            scout.fetch(args);
            scout.look(args, unit, unit.blocks - 1 - left, next_row);
            if constexpr (Rows::kQuarters) {  // each product takes a quarter of the keys
                ptx::mma_wait<3>();
                arrive(shared.quarter_empty[b][0]);
                ptx::mma_wait<2>();
                arrive(shared.quarter_empty[b][1]);
                ptx::mma_wait<1>();
                arrive(shared.quarter_empty[b][2]);
            }
            ptx::mma_wait<0>();
            ptx::mma_pin(o);
            // Every lane arrives, because every lane has read factors.
            ptx::barrier_arrive(ptx::shared_address(&shared.k_empty[b][1]));
        }
    }

    __device__ __forceinline__ void run() {
        const Share share(args);
        Lengths lengths(args, share, share.first);
#pragma unroll 1
        for (u32 u = share.first; u < share.end; u += share.step) {
            const Unit unit = unit_of(args, share, u, lengths);
            lengths = Lengths(args, share, u + share.step);
            if (unit.blocks == 0 && args.segments > 1) {
                continue;
            }
            if (unit.blocks == 0) {
                write_zeros(args, unit, at, kHalfColumns);
                continue;
            }
            float o[128];
            declare(o);
            // The first later unit with other heads or another row.
            const u32 after = args.segments == 1 || kEvery ? u + share.step : u - unit.segment + args.segments;
            run_unit(unit, after < share.end ? row_of(args, after) : -1, o);
            const u32 b = units & 1;
            ptx::barrier_wait(ptx::shared_address(&shared.final_full[b]), units >> 1 & 1);
            const float f0 = read(shared.final[b][at.row]), f1 = read(shared.final[b][at.row + 8]);
            ptx::barrier_arrive(ptx::shared_address(&shared.final_empty[b]));
            ++units;
            write_output<Type, interleaved<Rows>()>(args, unit, at, kHalfColumns, o, f0, f1);
        }
    }
};

}  // namespace sparrow_sparse
