// The value groups of the kernel that holds queries in registers: each has half of the output columns.
#pragma once

#include "ptx/multicast.cuh"
#include "sm90/sparse/held_storage.cuh"
#include "sm90/sparse/math.cuh"

namespace sparrow_sparse {

// Half 0 has output columns 0-255, half 1 output columns 256-511.
template <int Tiles, int Half>
struct HeldValueGroup {
    using Shape = HeldShape<Tiles>;
    using Storage = HeldStorage<Tiles>;

    const SparseAttendArgs& args;
    const TensorMap* outputs;
    Storage& shared;
    Corner at;
    u32 entry = 0, units = 0;  // ring entries (key blocks or queries) and units with keys that were processed

    __device__ __forceinline__ HeldValueGroup(const SparseAttendArgs& a, const TensorMap* o, Storage& s)
        : args(a), outputs(o), shared(s) {}

    // Return the ring index of the first and the second quarter of an entry that this group multiplies.
    static __device__ __forceinline__ u32 first_quarter(u32 entry) {
        return typename Storage::Quarter(entry * kQuarters + 2 * Half).at;
    }
    static __device__ __forceinline__ u32 second_quarter(u32 entry) {
        return typename Storage::Quarter(entry * kQuarters + 2 * Half + 1).at;
    }

    __device__ __forceinline__ void wait_weighted() const {
        const typename Storage::Step step(entry);
        ptx::barrier_wait(ptx::shared_address(&shared.weighted[step.at]), step.parity);
    }

    __device__ __forceinline__ void wait_scored(u32 e) const {
        const typename Storage::Step step(e);
        ptx::barrier_wait(ptx::shared_address(&shared.scored[step.at]), step.parity);
    }

    // Multiplies the weights p by the 128 columns of a quarter and adds the product to o[From] to o[From + 63].
    template <int From>
    __device__ __forceinline__ void multiply(float (&o)[128], u32 quarter, u64 p, bool first) {
        const u64 v = ptx::operand_128b_across(ptx::shared_address(shared.ring[quarter]), kTileBytes);
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            ptx::Bf16::multiply_128<From>(o, p + step * 2, v + step * 16 * 128 / 16, step > 0 || !first);
        }
        ptx::mma_commit();
    }

    // Adds the products of all key blocks of a unit to o. A block is multiplied shortly before the scores of the next
    // block are complete, so that the product overlaps the softmax of the next block. If a row has one segment, the
    // last two quarters of a unit are not freed, because the output is staged in them.
    __device__ __forceinline__ void run_unit(i32 blocks, float (&o)[128]) {
#pragma unroll 1
        for (i32 left = blocks - 1; left >= 0; --left, ++entry) {
            wait_weighted();
            ptx::fence_async_proxy();  // threads wrote the weights to shared memory
            const bool first = left == blocks - 1;
            if (first) {
                wait_scored(entry);  // completed earlier, but every phase must be waited for
            } else {
                const u32 turn = typename Storage::Turn(entry).at;
                const float f0 = read(shared.factor[turn][at.row]), f1 = read(shared.factor[turn][at.row + 8]);
                if (__any_sync(ptx::kFullMask, f0 != 1.0f || f1 != 1.0f)) {
                    rescale(o, f0, f1);
                }
            }
            if (left > 0) {
                wait_scored(entry + 1);
            }
            const u32 side = typename Storage::Side(entry).at;
            const u64 p = ptx::operand_128b(ptx::shared_address(shared.side[side]));
            const bool kept = left == 0 && args.segments == 1;  // the quarters stage the output
            const u32 quarter = first_quarter(entry), second = second_quarter(entry);
            ptx::mma_pin(o);
            ptx::mma_fence();
            multiply<0>(o, quarter, p, first);
            multiply<64>(o, second, p, first);
            ptx::mma_wait<1>();
            if (!kept) {
                arrive_lanes(shared.empty[quarter]);
            }
            ptx::mma_wait<0>();
            ptx::mma_pin(o);
            if (!kept) {
                arrive_lanes(shared.empty[second]);
            }
            // Every thread arrives, because every thread has read factors.
            ptx::barrier_arrive(ptx::shared_address(&shared.side_empty[side]));
        }
    }

    __device__ __forceinline__ void run() {
        each_held_unit(args, [&](u32 u, const HeldUnit& unit) {
            if (unit.blocks == 0) {
                if (args.segments == 1) {  // the combine kernel reads only segments that have keys
                    Unit empty;
                    empty.row = row_of(args, u);
                    empty.head = head_of(args, u);
                    write_zeros(args, empty, at, Half * kHalfColumns);
                    save(u, kLowest, kLowest, kLowest, kLowest, 0.0f, 0.0f);
                }
                return;
            }
            if (unit.fresh) {
                wait_weighted();  // the entry holds queries; every phase of its barriers must be waited for
                wait_scored(entry);
                ++entry;
            }
            const float sink0 = sink_of(args, head_of(args, u) + at.row),
                sink1 = sink_of(args, head_of(args, u) + at.row + 8);
            float o[128];
            declare(o);
            run_unit(unit.blocks, o);
            ptx::barrier_wait(ptx::shared_address(&shared.final_full), units & 1);
            const float m0 = read(shared.base[at.row]), m1 = read(shared.base[at.row + 8]);
            const float sum0 = read(shared.sum[at.row]), sum1 = read(shared.sum[at.row + 8]);
            float f0, f1;
            unit_factors(args, sink0, sink1, m0, m1, sum0, sum1, f0, f1);
            save(u, m0, m1, read(shared.largest[at.row]), read(shared.largest[at.row + 8]), sum0, sum1);
            ptx::barrier_arrive(ptx::shared_address(&shared.final_empty));
            ++units;
            write(u, o, f0, f1);
        });
        if (leads()) {
            ptx::stores_wait();
        }
    }

    __device__ __forceinline__ bool leads() const { return at.warp == 0 && at.lane == 0; }

    // Writes the softmax statistics for heads row and row + 8. Only the group of half 0 writes them.
    __device__ __forceinline__ void save(u32 u, float m0, float m1, float largest0, float largest1, float sum0,
        float sum1) const {
        if (Half == 0 && at.lane % 4 == 0) {
            save(u, head_of(args, u) + at.row, m0, largest0, sum0);
            save(u, head_of(args, u) + at.row + 8, m1, largest1, sum1);
        }
    }

    __device__ __forceinline__ void save(u32 u, i32 head, float m, float largest, float sum) const {
        if (head >= args.heads) {
            return;
        }
        const i32 row = row_of(args, u);
        if (args.segments == 1) {
            write_stats(args, row, head, m, largest, sum);
        } else {
            write_part_stats(args, static_cast<i64>(row) * args.segments + segment_of(args, u), head, m, largest, sum);
        }
    }

    __device__ __forceinline__ void write(u32 u, const float (&o)[128], float f0, float f1) const {
        const i32 row = row_of(args, u), head = head_of(args, u);
        if (args.segments > 1) {
            const i32 segment = static_cast<i32>(segment_of(args, u));
            write_part<ptx::Bf16>(Parts<ptx::Bf16>::at(args, row, segment, head, Half * kHalfColumns), o, f0, f1);
            return;
        }
        // The output is staged in the quarters of the last block's keys, after the products of all warps have read
        // them.
        const u32 quarter = first_quarter(entry - 1), second = second_quarter(entry - 1);
        const u32 place = tile_byte(at.warp * 16 + at.lane % 16, at.lane / 16);
        ptx::group_sync<2 + Half, 128>();
#pragma unroll
        for (int j = 0; j < 16; ++j) {
            u32 w[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float f = k % 2 ? f1 : f0;
                w[k] = ptx::Bf16::pack(o[j * 8 + 2 * k] * f, o[j * 8 + 2 * k + 1] * f);
            }
            const u32 tile = ptx::shared_address(shared.ring[j < 8 ? quarter : second]) + j / 4 % 2 * kTileBytes;
            ptx::store_fragments(tile + (place ^ (j % 4 * 32)), w);
        }
        ptx::fence_async_proxy();
        ptx::group_sync<2 + Half, 128>();
        if (leads()) {
#pragma unroll 1
            for (u32 tile = 0; tile < kHalfTiles; ++tile) {
                const u32 from = ptx::shared_address(shared.ring[tile < kQuarterTiles ? quarter : second]);
                ptx::store_3d(outputs, from + tile % kQuarterTiles * kTileBytes,
                    Half * kHalfColumns + static_cast<i32>(tile) * kTileColumns, head, row);
            }
            ptx::stores_commit();
            ptx::stores_read();
        }
        arrive_lanes(shared.empty[quarter]);
        arrive_lanes(shared.empty[second]);
    }
};

}  // namespace sparrow_sparse
