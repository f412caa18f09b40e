// Two thread blocks per unit: the eight fetching warps. A thread has a quarter of one row, so that a whole block of
// keys is in flight while the previous one is converted.
#pragma once

#include "sm90/sparse/convert.cuh"
#include "sm90/sparse/duo_storage.cuh"

namespace sparrow_sparse {

// The fetching warps. Thread block 0 needs the left halves (tiles 0-3) of all key blocks, thread block 1 the right
// halves; each also needs the other halves of the key blocks that it owns.
template <class Rows>
struct DuoFetch {
    using Block = Coming<Rows::kTwoStreams, true>;
    const SparseAttendArgs& args;
    DuoStorage& shared;
    const DuoUnit& unit;
    u32 t;

    // Returns key block n of the unit; the load of its list entry is still in flight.
    __device__ __forceinline__ Block block(i32 n) const {
        Block c;
        const BlockPlace place = unit.place<Rows::kTwoStreams>(n);
        c.second = place.stream;
        const SelectionView& s = c.stream(args);
        const i32 position = place.position + Block::own_key(t);
        if (n < unit.blocks && position < place.length) {
            c.slot = s.indices[unit.list * s.index_stride + entry_of(position)];
        }
        return c;
    }

    __device__ __forceinline__ bool left(i32 n) const { return unit.own(n) || unit.rank == 0; }
    __device__ __forceinline__ bool right(i32 n) const { return unit.own(n) || unit.rank == 1; }

    // Loads the halves of key block n that this thread block needs.
    __device__ __forceinline__ void ask(Rows& rows, const Block& c, i32 n, u32 after) const {
        if (left(n)) {
            rows.template ask<true>(args, c, t, after);
        }
        if (right(n)) {
            rows.template ask<false>(args, c, t, after);
        }
    }

    // Converts key block n, whose codes are in `have` or in flight, and loads key block n + 1 into `get`.
    __device__ __forceinline__ void step(Rows& have, Rows& get, i32 n, Block& now, Block& next) {
        // Addresses are computed again for every block, because there are no registers to keep them.
        asm volatile("" : "+r"(t));
        const bool own = unit.own(n);
        // i is the number of earlier key blocks with the owner of key block n; j is the buffer of v for a key block
        // that the other thread block owns.
        const u32 i = static_cast<u32>(n) >> 1, j = i & 1;
        const u32 own_parity = (i & 1) ^ 1, other_parity = (i >> 1 & 1) ^ 1;
        const u32 k = ptx::shared_address(shared.k), v = ptx::shared_address(shared.v[j]);
        next.settle(args);
        ask(get, next, n + 1, have.template arrived<true>(args) | have.template arrived<false>(args));
        const u32 mask = now.mask();
        now = next;
        next = block(n + 2);
        if (left(n)) {
            ptx::barrier_wait(ptx::shared_address(own ? &shared.left_free : &shared.v_free[j]),
                own ? own_parity : other_parity);
            if (own && t % 32 == 0) {
                reinterpret_cast<u8*>(&shared.valid)[t / 32] = static_cast<u8>(mask);
            }
            have.template store_row<true>(own ? k : v, 0, t);
            ptx::barrier_arrive(ptx::shared_address(own ? &shared.k_full[0] : &shared.v_full[j]));
        }
        if (n == 0) {
            Queries<Rows>::convert(shared, t);
        }
        if (right(n)) {
            ptx::barrier_wait(ptx::shared_address(own ? &shared.own_free : &shared.v_free[j]),
                own ? own_parity : other_parity);
            have.template store_row<false>(own ? k : v - kHalfTiles * kTileBytes, 0, t, own);
            ptx::barrier_arrive(ptx::shared_address(own ? &shared.k_full[1] : &shared.v_full[j]));
        }
    }

    __device__ __forceinline__ void run() {
        static_assert(Rows::kRows == 1, "a thread has one row of a block");
        Rows even, odd;
        Block now = block(0), next = block(1);
        now.settle(args);
        even.clear();
        odd.clear();
        ask(even, now, 0, 0);
        Queries<Rows>::ask(args, shared, unit.row, unit.head, t);
#pragma unroll 1
        for (i32 n = 0; n < unit.blocks; n += 2) {
            step(even, odd, n, now, next);
            if (n + 1 < unit.blocks) {
                step(odd, even, n + 1, now, next);
            }
        }
    }
};

}  // namespace sparrow_sparse
