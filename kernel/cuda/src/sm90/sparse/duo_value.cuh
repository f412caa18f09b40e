// Two thread blocks per unit: the value group, which multiplies weights by values.
#pragma once

#include "sm90/sparse/duo_storage.cuh"
#include "sm90/sparse/scout.cuh"

namespace sparrow_sparse {

// The value group: products of the weights of all key blocks and this thread block's 256 value columns.
template <class Rows>
struct DuoValues {
    using Type = typename Rows::Type;
    const SparseAttendArgs& args;
    DuoStorage& shared;
    const DuoUnit& unit;
    Corner at;

    __device__ __forceinline__ DuoValues(const SparseAttendArgs& a, DuoStorage& s, const DuoUnit& u) : args(a),
        shared(s), unit(u) {}

    // Prefetches the rows of the key blocks that this thread block owns into L2.
    __device__ __forceinline__ void scout() const {
        constexpr u32 kLine = 128;
        const u32 t = threadIdx.x % 128;
#pragma unroll 4
        for (i32 n = static_cast<i32>(unit.rank); n < unit.blocks; n += 2) {
            const BlockPlace place = unit.place<Rows::kTwoStreams>(n);
            const SelectionView& s = args.streams[Rows::kTwoStreams ? place.stream : 0];
            const i32 position = place.position + static_cast<i32>(t / 2);
            const i32 entry = position < place.length ? s.indices[unit.list * s.index_stride + entry_of(position)] : -1;
            const i32 slot = slot_of(entry, static_cast<i32>(t / 2));
            if (slot >= 0 && slot < s.slots) {
                if constexpr (Rows::kMixed) {
                    if (s.scales == Rows::Held::kSecondBytes) {
                        prefetch_lines<Rows::Held::kSecondBytes, kLine>(page_of(s, slot) + (slot & s.page_mask) *
                            Rows::Held::kSecondBytes, t % 2);
                        continue;
                    }
                }
                const u8* row = page_of(s, slot) + (slot & s.page_mask) * Rows::kRowBytes;
                prefetch_lines<Rows::kRowBytes, kLine>(row, t % 2);
            }
        }
    }

    __device__ __forceinline__ void run() {
        scout();
        float o[128];
        declare(o);
#pragma unroll 1
        for (i32 n = 0; n < unit.blocks; ++n) {
            const bool own = unit.own(n);
            const u32 i = static_cast<u32>(n) >> 1, j = i & 1;
            ptx::barrier_wait(ptx::shared_address(own ? &shared.own_full : &shared.other_full), i & 1);
            if (own) {
                ptx::barrier_wait(ptx::shared_address(&shared.k_full[unit.rank]), i & 1);
            } else {
                if (threadIdx.x % 128 == 0 && n + 2 < unit.blocks) {
                    ptx::barrier_expect(ptx::shared_address(&shared.other_full), kWeightBytes);
                }
                ptx::barrier_wait(ptx::shared_address(&shared.v_full[j]), i >> 1 & 1);
            }
            ptx::fence_async_proxy();
            const LaneSums* sums = (own ? shared.own_sums : shared.sums) + threadIdx.x % 128;
            const float f0 = read(sums->f0), f1 = read(sums->f1);
            if (n > 0 && __any_sync(ptx::kFullMask, f0 != 1.0f || f1 != 1.0f)) {
                rescale(o, f0, f1);
            }
            const u64 p = ptx::operand_128b(own ? shared.own_weights() : ptx::shared_address(shared.weights));
            const u64 v = ptx::operand_128b_across(own
                ? ptx::shared_address(shared.k) + unit.rank * kHalfTiles * kTileBytes
                    : ptx::shared_address(shared.v[j]), kTileBytes);
            ptx::mma_pin(o);
            ptx::mma_fence();
#pragma unroll
            for (int step = 0; step < 4; ++step) {
                Type::template multiply_128<0>(o, p + step * 2, v + step * 16 * 128 / 16, step > 0 || n > 0);
                Type::template multiply_128<64>(o, p + step * 2, v + 2 * kTileBytes / 16 + step * 16 * 128 / 16,
                    step > 0 || n > 0);
            }
            ptx::mma_commit();
            ptx::mma_wait<0>();
            ptx::mma_pin(o);
            if (own) {
                if (unit.rank == 0) {
                    arrive(shared.left_free);
                }
                arrive(shared.own_free);
            } else {
                arrive(shared.v_free[j]);
                arrive_at_other(shared.own_free, unit.rank);
            }
        }
        ptx::barrier_wait(ptx::shared_address(&shared.final_full), 0);
        const float f0 = read(shared.final[at.row]), f1 = read(shared.final[at.row + 8]);
        if (Rows::kTwoStreams && args.segments == 1) {
            write_whole(args, unit.row, unit.head, at, unit.column(), o, f0, f1);
        } else {
            write_part<Type>(Parts<Type>::at(args, unit.row, unit.segment, unit.head, unit.column()), o, f0, f1);
        }
    }
};

}  // namespace sparrow_sparse
