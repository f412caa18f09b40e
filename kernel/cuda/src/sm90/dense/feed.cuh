// The warps that feed the math warpgroups: one finds units of work, one issues the copies of their queries, keys and
// values.
#pragma once

#include "ptx/copy.cuh"
#include "sm90/dense/plan.cuh"
#include "sm90/dense/storage.cuh"

namespace sparrow_dense {

constexpr u32 kFaultKeys = 4;  // fault bit: a row has keys outside the tensor

// Prefetches a box of a tensor map into L2.
__device__ __forceinline__ void prefetch_3d(const TensorMap* map, i32 c0, i32 c1, i32 c2) {
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];"
        ::"l"(map), "r"(c0), "r"(c1), "r"(c2) : "memory");
}

// The head and the tile of rows of a unit.
struct Place {
    i32 tile, head;
};

// Returns the tile and head of unit u of the plan. The units of a run are consecutive. Inside a run, heads are grouped
// so that the tiles of a group occupy all thread blocks; thread blocks that run at the same time then read the same
// keys and values from L2. Within a group, the tiles of the last rows come first, because these rows have the most
// keys.
__device__ __forceinline__ Place place_of(Plan& plan, u32 u, u32 heads) {
    const u32 first = plan.tile(u / heads)->first;
    const u32 count = plan.tile(first)->count;
    const u32 at = u - first * heads;
    const u32 group = min(max(gridDim.x / count, 1u), heads);
    const u32 section = at / (count * group), rest = at - section * count * group;
    const u32 members = min(group, heads - section * group);
    const u32 position = rest / members;
    return {static_cast<i32>(first + count - 1 - position),
        static_cast<i32>(section * group + rest - position * members)};
}

// The warp that finds units. Every thread block starts with the unit of its block number and takes further units from a
// global counter, which balances the load. The bits of a unit do not depend on the thread block that computes it.
template <class S>
__device__ __forceinline__ void find_units(const DenseAttendArgs& args, Storage<S>& shared) {
    const u32 lane = threadIdx.x % 32, heads = args.heads;
    Plan& plan = *reinterpret_cast<Plan*>(args.plan);
    const u32 units = static_cast<u32>(plan.tiles) * heads;
    Cursor<kRecords> ring;
    u32 u = blockIdx.x;
#pragma unroll 1
    while (u < units) {
        const Place place = place_of(plan, u, heads);
        const i32 row = plan.tile(place.tile)->row, rows = plan.tile(place.tile + 1)->row - row;
        const i32 key = args.start[row * args.start_stride];
        u32 taken = 0;
        if (lane == 0) {
            taken = atomicAdd(&plan.next, 1u);
        }
        i32 len[4];
        i32 most[2] = {0, 0}, least[2] = {0x7FFFFFFF, 0x7FFFFFFF};
        bool outside = false;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const i32 r = static_cast<i32>(lane) + 32 * i;
            len[i] = 0;
            if (r < rows) {
                const i32 n = max(args.lens[(row + r) * args.len_stride], 0);
                const bool inside = key >= 0 && n <= args.keys - key;
                outside = outside || !inside;
                len[i] = inside ? n : 0;
                most[i / 2] = max(most[i / 2], len[i]);
                least[i / 2] = min(least[i / 2], len[i]);
            }
        }
        if (outside && args.faults != nullptr) {
            atomicOr(args.faults, kFaultKeys);
        }
        const i32 most0 = ptx::warp_max_signed(most[0]), most1 = ptx::warp_max_signed(most[1]);
        const i32 least0 = ptx::warp_min_signed(least[0]), least1 = ptx::warp_min_signed(least[1]);
        wait(shared.record_empty[ring.stage], ring.parity ^ 1);
        Record& record = shared.records[ring.stage];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            record.lens[lane + 32 * i] = len[i];
        }
        if (lane == 0) {
            record.row = row;
            record.rows = rows;
            record.head = place.head;
            record.key = key;
            record.tiles = tiles_of<S>(max(most0, most1));
            record.most[0] = most0;
            record.most[1] = most1;
            record.whole[0] = least0 / S::Keys;
            record.whole[1] = least1 / S::Keys;
        }
        // Every lane arrives, because each lane has written a part of the record.
        ptx::barrier_arrive(ptx::shared_address(&shared.record_full[ring.stage]));
        ring.advance();
        if (lane < 2) {
            prefetch_3d(&args.query_map, 0, row + lane * kGroupRows, place.head * S::Query);
        }
        u = gridDim.x + __shfl_sync(ptx::kFullMask, taken, 0);
    }
    wait(shared.record_empty[ring.stage], ring.parity ^ 1);
    if (lane == 0) {
        shared.records[ring.stage].tiles = -1;
    }
    ptx::barrier_arrive(ptx::shared_address(&shared.record_full[ring.stage]));  // each lane arrives, for its own writes
}

// The copy thread. It loads the tiles of a unit from the last keys to the first. It loads the last keys before the
// queries, because the buffer of the queries is freed later.
template <class S>
__device__ __forceinline__ void load_units(const DenseAttendArgs& args, Storage<S>& shared) {
    Cursor<kRecords> ring;
    Cursor<kStages> at;
    u32 units = 0;
#pragma unroll 1
    while (true) {
        wait(shared.record_full[ring.stage], ring.parity);
        const volatile Record& record = shared.records[ring.stage];
        const i32 row = record.row, head = record.head, tiles = record.tiles, key = record.key;
        ptx::barrier_arrive(ptx::shared_address(&shared.record_empty[ring.stage]));
        ring.advance();
        if (tiles < 0) {
            return;
        }
#pragma unroll 1
        for (i32 t = tiles - 1; t >= 0; --t) {
            const i32 first = key + t * S::Keys, column = head * (S::Nope + S::Value);
            wait(shared.k_empty[at.stage], at.parity ^ 1);
            const u32 full = ptx::shared_address(&shared.k_full[at.stage]), k = ptx::shared_address(shared.k[at.stage]);
            ptx::barrier_expect(full, S::Query * S::KeyTileBytes);
            ptx::load_3d(k, &args.key_map, full, 0, first, column, ptx::kEvictLast);
            ptx::load_2d(k + S::Nope * S::KeyTileBytes, &args.rope_map, full, 0, first, ptx::kEvictLast);
            if (t == tiles - 1) {
                for (int g = 0; g < 2; ++g) {
                    wait(shared.q_empty[g], (units & 1) ^ 1);
                    const u32 bar = ptx::shared_address(&shared.q_full[g]);
                    ptx::barrier_expect(bar, S::Query * S::QueryTileBytes);
                    ptx::load_3d(ptx::shared_address(shared.q[g]), &args.query_map, bar, 0, row + g * kGroupRows,
                        head * S::Query, ptx::kEvictFirst);
                }
                ++units;
            }
            wait(shared.v_empty[at.stage], at.parity ^ 1);
            const u32 bar = ptx::shared_address(&shared.v_full[at.stage]);
            ptx::barrier_expect(bar, S::Value * S::KeyTileBytes);
            ptx::load_3d(ptx::shared_address(shared.v[at.stage]), &args.value_map, bar, 0, first, column + S::Nope,
                ptx::kEvictLast);
            at.advance();
        }
    }
}

}  // namespace sparrow_dense
