// Two thread blocks per unit of rows of V4.1: the value group.
#pragma once

#include "sm90/sparse/shared_duo_storage.cuh"

namespace sparrow_sparse {

// The value group: products of the weights of all key blocks and this thread block's 256 value columns.
struct SharedDuoValues {
    using Type = SharedFormat::Type;
    const SparseAttendArgs& args;
    SharedDuoStorage& shared;
    const DuoUnit& unit;
    Corner at;

    // Prefetches the rows of the key blocks that this thread block owns into L2, except those of the first two blocks,
    // which the fetching threads prefetch.
    __device__ __forceinline__ void scout() const {
        const u32 t = threadIdx.x % 128;
#pragma unroll 4
        for (i32 n = static_cast<i32>(unit.rank) + 4; n < unit.blocks; n += 2) {
            const BlockPlace place = unit.place<true>(n);
            const SelectionView& s = args.streams[place.stream];
            const i32 position = place.position + static_cast<i32>(t / 2);
            prefetch_row(s, position < place.length ? s.indices[unit.list * s.index_stride + position] : -1, t % 2);
        }
    }

    __device__ __forceinline__ void run() {
        scout();
        float o[128];
        declare(o);
#pragma unroll 1
        for (i32 n = 0; n < unit.blocks; ++n) {
            const bool own = unit.own(n);
            const RingPlace place(n);
            ptx::barrier_wait(ptx::shared_address(own ? &shared.own_full : &shared.other_full),
                static_cast<u32>(n) >> 1 & 1);
            if (!own && threadIdx.x % 128 == 0 && n + 2 < unit.blocks) {
                ptx::barrier_expect(ptx::shared_address(&shared.other_full), kWeightBytes);
            }
            ptx::barrier_wait(ptx::shared_address(&shared.values_full[place.slot]), place.parity);
            ptx::fence_async_proxy();
            const LaneSums* sums = (own ? shared.own_sums : shared.sums) + threadIdx.x % 128;
            const float f0 = read(sums->f0), f1 = read(sums->f1);
            if (n > 0 && __any_sync(ptx::kFullMask, f0 != 1.0f || f1 != 1.0f)) {
                rescale(o, f0, f1);
            }
            const u64 p = ptx::operand_128b(ptx::shared_address(own ? shared.own_weights : shared.weights));
            const u64 v = ptx::operand_128b_across(ptx::shared_address(shared.values[place.slot]), kTileBytes);
            ptx::mma_pin(o);
            ptx::mma_fence();
#pragma unroll
            for (int step = 0; step < 4; ++step) {
                Type::multiply_128<0>(o, p + step * 2, v + step * 16 * 128 / 16, step > 0 || n > 0);
                Type::multiply_128<64>(o, p + step * 2, v + 2 * kTileBytes / 16 + step * 16 * 128 / 16,
                    step > 0 || n > 0);
            }
            ptx::mma_commit();
            ptx::mma_wait<0>();
            ptx::mma_pin(o);
            arrive(shared.values_free[place.slot]);
            if (own) {
                arrive(shared.own_free);
            } else {
                arrive_at_other(shared.own_free, unit.rank);
            }
        }
        ptx::barrier_wait(ptx::shared_address(&shared.final_full), 0);
        const float f0 = read(shared.final[at.row]), f1 = read(shared.final[at.row + 8]);
        if (args.segments == 1) {
            write_whole<true>(args, unit.row, unit.head, at, unit.column(), o, f0, f1);
        } else {
            write_part<Type, true>(Parts<Type>::at(args, unit.row, unit.segment, unit.head, unit.column()), o, f0, f1);
        }
    }
};

}  // namespace sparrow_sparse
