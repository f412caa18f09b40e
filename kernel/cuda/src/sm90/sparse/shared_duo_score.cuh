// Two thread blocks per unit of rows of V4.1: the score group.
#pragma once

#include "sm90/sparse/duo_score.cuh"
#include "sm90/sparse/shared_duo_storage.cuh"

namespace sparrow_sparse {

struct SharedDuoScores : DuoScores<SharedDuoRows, SharedDuoStorage> {
    using Rows = SharedDuoRows;
    using Pair = DuoScores<SharedDuoRows, SharedDuoStorage>;

    __device__ __forceinline__ SharedDuoScores(const SparseAttendArgs& a, SharedDuoStorage& s, const DuoUnit& u) :
        Pair(a, s, u) {}

    // Publishes the weights, sums and factors of a key block of this thread block to the value groups of both thread
    // blocks. Both have read those of the previous own key block before.
    __device__ __forceinline__ void publish(const u32 (&p)[4][4], const LaneSums& sums, u32 parity) {
        const u32 t = threadIdx.x % 128;
        const u32 row = at.warp * 16 + at.lane % 16, base = ptx::shared_address(shared.own_weights);
        ptx::barrier_wait(ptx::shared_address(&shared.own_free), parity ^ 1);
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            ptx::store_fragments(base + tile_byte(row, 2 * j + at.lane / 16), p[j]);
        }
        shared.own_sums[t] = sums;
        ptx::fence_async_proxy();
        ptx::barrier_arrive(ptx::shared_address(&shared.own_full));
        const u32 bar = other(&shared.other_full);
        __syncwarp();
        if (at.lane == 0) {
            const u32 piece = at.warp * 16 * 128;
            ptx::peer_copy(other(shared.weights) + piece, base + piece, 16 * 128, bar);
        }
        ptx::barrier_wait(ptx::shared_address(&shared.sums_free), parity ^ 1);
        ptx::peer_send(other(&shared.sums[t]),
            make_uint4(__float_as_uint(sums.t0), __float_as_uint(sums.t1), __float_as_uint(sums.f0),
                __float_as_uint(sums.f1)), bar);
    }

    // Waits for a half of the columns of key block n: its value columns, or its other columns.
    __device__ __forceinline__ void wait_half(bool values, i32 n) const {
        const RingPlace place(n);
        ptx::barrier_wait(ptx::shared_address(values ? &shared.values_full[place.slot] : &shared.rest_full),
            values ? place.parity : static_cast<u32>(n) >> 1 & 1);
        ptx::fence_async_proxy();
    }

    __device__ __forceinline__ void run() {
        m0 = m1 = max0 = max1 = kLowest;
        sum0 = sum1 = 0.0f;
        // Loaded here, so that the end of the row does not wait for memory.
        const float sink0 = sink_of(args, unit.head + at.row), sink1 = sink_of(args, unit.head + at.row + 8);
        float s[32];
        u32 p[4][4];
#pragma unroll 1
        for (i32 n = static_cast<i32>(unit.rank); n < unit.blocks; n += 2) {
            const u32 parity = static_cast<u32>(n) >> 1 & 1;
            const u8* values = shared.values[RingPlace(n).slot];
            // Tiles 0-3 are the value columns of thread block 0.
            wait_half(unit.rank == 0, n);
            ptx::mma_pin(s);
            ptx::mma_fence();
            multiply_tiles<Rows, 0, kHalfTiles>(s, shared.q, unit.rank == 0 ? values : shared.rest);
            wait_half(unit.rank == 1, n);
            ptx::mma_fence();
            multiply_tiles<Rows, kHalfTiles, Rows::Tiles>(s, shared.q, (unit.rank == 0 ? shared.rest : values) -
                kHalfBytes);
            const u64 valid = valid_keys(shared.valid);
            ptx::mma_wait<0>();
            ptx::mma_pin(s);
            arrive(shared.rest_free);
            if (n > 0) {
                receive_base(n - 1);
                if (threadIdx.x % 128 == 0 && n + 1 < unit.blocks) {
                    ptx::barrier_expect(ptx::shared_address(&shared.base_full), kBaseBytes);
                }
            }
            set_shift(Rows::is_entry(args.streams[unit.place<true>(n).stream]));
            LaneSums sums;
            rebase(s, valid, sums.f0, sums.f1);
            send_heads(shared.base, shared.base_full, m0, m1);
            sums.t0 = sums.t1 = 0.0f;
            weigh_keys<0>(s, p[0], sums.t0, sums.t1);
            weigh_keys<1>(s, p[1], sums.t0, sums.t1);
            weigh_keys<2>(s, p[2], sums.t0, sums.t1);
            weigh_keys<3>(s, p[3], sums.t0, sums.t1);
            publish(p, sums, parity);
            if (n > 0) {
                add_other(n - 1);
            }
            sum0 = fmaf(sum0, sums.f0, sums.t0);
            sum1 = fmaf(sum1, sums.f1, sums.t1);
        }
        if (!unit.own(unit.blocks - 1)) {
            receive_base(unit.blocks - 1);
            add_other(unit.blocks - 1);
        }
        gather();
        float f0, f1;
        unit_factors(args, sink0, sink1, m0, m1, sum0, sum1, f0, f1);
        finish(f0, f1);
    }
};

}  // namespace sparrow_sparse
