// Several thread blocks a unit: the products of weights and values.
#pragma once

#include "ptx/copy.cuh"
#include "ptx/wgmma_narrow.cuh"
#include "sm90/sparse/team_storage.cuh"

namespace sparrow_sparse {

// The value group: own columns of all blocks of keys, and the sums of their weights, in the order of the blocks.
template <class Rows, int Team>
struct TeamValues {
    using Type = typename Rows::Type;
    static constexpr int kSlices = TeamStorage<Team>::kSlices;
    const SparseAttendArgs& args;
    TeamStorage<Team>& shared;
    const TeamUnit<Team>& unit;
    Corner at;
    float o[256 / Team];

    __device__ __forceinline__ TeamValues(const SparseAttendArgs& a, TeamStorage<Team>& s, const TeamUnit<Team>& u)
        : args(a), shared(s), unit(u) {}

    // Asks the rows of own blocks into L2.
    __device__ __forceinline__ void scout() const {
        constexpr u32 kLine = 128;
        const SelectionView& s = args.streams[0];
        const u32 t = threadIdx.x % 128;
#pragma unroll 4
        for (i32 n = static_cast<i32>(unit.rank); n < unit.blocks; n += Team) {
            const i32 position = n * kKeys + static_cast<i32>(t / 2);
            const i32 slot = position < unit.keys ? s.indices[unit.row * s.index_stride + position] : -1;
            if (slot >= 0 && slot < s.slots) {
                const u8* row = page_of(s, slot) + (slot & s.page_mask) * Rows::kRowBytes;
#pragma unroll
                for (u32 i = 0; i < (Rows::kRowBytes + 2 * kLine - 1) / (2 * kLine); ++i) {
                    ptx::prefetch_line(row + min((2 * i + t % 2) * kLine, static_cast<u32>(Rows::kRowBytes - 16)));
                }
            }
        }
    }

    // Waits for weights and columns of block n, a block of member i of a round.
    __device__ __forceinline__ void wait(i32 n, u32 i, u32 round) {
        const u32 slot = static_cast<u32>(n) % kWeightSlots;
        if (i == unit.rank) {
            ptx::barrier_wait(ptx::shared_address(&shared.own_full), round & 1);
        } else {
            // How often others' weights have been in the slot: it is one member's, or two take turns, one of which
            // may be this one.
            const u32 use = Team == kWeightSlots || slot == unit.rank % kWeightSlots ? round
                : 2 * round + i / kWeightSlots;
            ptx::barrier_wait(ptx::shared_address(&shared.others_full[slot]), use & 1);
            if (threadIdx.x % 128 == 0) {
                ptx::barrier_expect(ptx::shared_address(&shared.others_full[slot]), kWeightBytes);
            }
        }
        ptx::barrier_wait(ptx::shared_address(&shared.v_full[n % kSlices]), static_cast<u32>(n / kSlices) & 1);
        ptx::fence_async_proxy();
    }

    // Block n is done with: its columns, and its slot, which block n + kWeightSlots has next.
    __device__ __forceinline__ void release(i32 n) {
        arrive(shared.v_free[n % kSlices]);
        if (n + kWeightSlots < unit.blocks && at.lane == 0) {
            ptx::peer_arrive(ptx::peer_address(ptx::shared_address(&shared.slot_free),
                static_cast<u32>(n + kWeightSlots) % Team));
        }
    }

    __device__ __forceinline__ void multiply(i32 n, u32 slot) {
        const u64 p = ptx::operand_128b(ptx::shared_address(shared.weights[slot]));
        const u64 v = ptx::operand_128b_across(ptx::shared_address(shared.v[n % kSlices]), kTileBytes);
        ptx::mma_pin(o);
        ptx::mma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            const u64 a = p + step * 2, b = v + step * 16 * 128 / 16;
            if constexpr (Team == 4) {
                ptx::multiply_f16_128<0>(o, a, b, step > 0 || n > 0);
            } else {
                ptx::multiply_64_across(Type(), o, a, b, step > 0 || n > 0);
            }
        }
        ptx::mma_commit();
    }

    __device__ __forceinline__ void run() {
        scout();
        declare(o);
        float sum0 = 0.0f, sum1 = 0.0f;
        u32 i = 0, round = 0;
#pragma unroll 1
        for (i32 n = 0; n < unit.blocks; ++n) {
            const u32 slot = static_cast<u32>(n) % kWeightSlots;
            wait(n, i, round);
            const float4 sums = *reinterpret_cast<const float4*>(&shared.sums[slot][threadIdx.x % 128]);
            sum0 = fmaf(sum0, sums.z, sums.x);
            sum1 = fmaf(sum1, sums.w, sums.y);
            if (n > 0 && __any_sync(ptx::kFullMask, sums.z != 1.0f || sums.w != 1.0f)) {
                ptx::mma_wait<0>();
                ptx::mma_pin(o);
                rescale(o, sums.z, sums.w);
            }
            multiply(n, slot);
            if (n > 0) {  // the product of the block before runs no longer
                ptx::mma_wait<1>();
                release(n - 1);
            }
            if (++i == Team) {
                i = 0;
                ++round;
            }
        }
        ptx::mma_wait<0>();
        ptx::mma_pin(o);
        finish(sum0, sum1);
    }

    // The end of the row: sums of a head's lanes, result, and the numbers beside it.
    __device__ __forceinline__ void finish(float sum0, float sum1) {
#pragma unroll
        for (int d = 1; d < 4; d *= 2) {
            sum0 += __shfl_xor_sync(ptx::kFullMask, sum0, d);
            sum1 += __shfl_xor_sync(ptx::kFullMask, sum1, d);
        }
        const i32 head = unit.head + at.row;
        const float sink0 = sink_of(args, head), sink1 = sink_of(args, head + 8);
        ptx::barrier_wait(ptx::shared_address(&shared.final_full), 0);
        const float m0 = *const_cast<const volatile float*>(&shared.base[at.row]),
            m1 = *const_cast<const volatile float*>(&shared.base[at.row + 8]);
        write_whole(args, unit.row, unit.head, at, unit.column(), o, final_factor(args, sink0, m0, sum0),
            final_factor(args, sink1, m1, sum1));
        if (unit.rank == 0 && at.lane % 4 == 0) {
            if (head < args.heads) {
                write_stats(args, unit.row, head, m0, shared.highest[at.row], sum0);
            }
            if (head + 8 < args.heads) {
                write_stats(args, unit.row, head + 8, m1, shared.highest[at.row + 8], sum1);
            }
        }
    }
};

}  // namespace sparrow_sparse
