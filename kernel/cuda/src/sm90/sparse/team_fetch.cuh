// Several thread blocks a unit: the fetching warps. Eight of them, a row a thread.
#pragma once

#include "sm90/sparse/convert.cuh"
#include "sm90/sparse/team_storage.cuh"

namespace sparrow_sparse {

// Own columns of one row: codes of Tiles tiles, which have one scale.
template <int Tiles>
struct Slice {
    uint4 codes[Tiles];
    float scale;

    // Member rank of a team of 8 / Tiles; after is zero: what must be there before.
    __device__ __forceinline__ void ask(const SelectionView& s, i32 slot, u32 rank, u32 t, u32 after) {
        if (slot >= 0) {
            const u8* row = page_of(s, slot) + (slot & s.page_mask) * BlockFormat::kRowBytes + after;
            const u32 first = rank * Tiles;
#pragma unroll
            for (int i = 0; i < Tiles; ++i) {
                codes[i] = load_16(row + (first + i) * 64 + t % 4 * 16);
            }
            asm volatile("ld.global.f32 %0, [%1];" : "=f"(scale) : "l"(row + 512 + first / 2 * 4));
        } else {
#pragma unroll
            for (int i = 0; i < Tiles; ++i) {
                codes[i] = zeros();
            }
            scale = 0.0f;
        }
    }

    __device__ __forceinline__ void store(u32 base, u32 t) const {
#pragma unroll
        for (int i = 0; i < Tiles; ++i) {
            store_codes(base + i * kTileBytes, t / 4, t % 4, codes[i], half_scale(scale));
        }
    }
};

// A round: the own block as a whole, for its scores, then own columns of all its blocks in their order. The rows of
// one are on their way while the others are converted.
template <class Rows, int Team>
struct TeamFetch {
    using Block = Coming<false, true>;
    static constexpr int kSliceTiles = TeamStorage<Team>::kSliceTiles, kSlices = TeamStorage<Team>::kSlices;
    const SparseAttendArgs& args;
    TeamStorage<Team>& shared;
    const TeamUnit<Team>& unit;
    u32 t;
    Rows own;
    Slice<kSliceTiles> slices[Team];

    // Block n, whose list is on its way.
    __device__ __forceinline__ Block block(i32 n) const {
        Block c;
        const SelectionView& s = args.streams[0];
        const i32 position = n * kKeys + Block::own_key(t);
        if (position < unit.keys) {
            c.slot = s.indices[unit.row * s.index_stride + position];
        }
        return c;
    }

    __device__ __forceinline__ void ask_own(const Block& c, u32 after) {
        own.template ask<true>(args, c, t, after);
        own.template ask<false>(args, c, t, after);
    }

    __device__ __forceinline__ void ask_slices(const Block (&c)[Team], u32 after) {
#pragma unroll
        for (int i = 0; i < Team; ++i) {
            const i32 slot = __shfl_sync(ptx::kFullMask, c[i].slot, t % 32 / 4);
            slices[i].ask(args.streams[0], slot, unit.rank, t, after);
        }
    }

    // Zero, but known only when the last of the slices has arrived.
    __device__ __forceinline__ u32 slices_arrived() const {
        return slices[Team - 1].codes[kSliceTiles - 1].w & static_cast<u32>(args.rows >> 31);
    }

    // Converts the own block of a round.
    __device__ __forceinline__ void store_own(u32 mask, i32 round) {
        const u32 k = ptx::shared_address(shared.k);
        ptx::barrier_wait(ptx::shared_address(&shared.k_free), (static_cast<u32>(round) & 1) ^ 1);
        if (t % 32 == 0) {
            reinterpret_cast<u8*>(&shared.valid)[t / 32] = static_cast<u8>(mask);
        }
        own.template store_row<true>(k, 0, t);
        ptx::barrier_arrive(ptx::shared_address(&shared.k_full[0]));
        if (round == 0) {
            Queries<Rows>::convert(shared, t);
        }
        own.template store_row<false>(k, 0, t);
        ptx::barrier_arrive(ptx::shared_address(&shared.k_full[1]));
    }

    __device__ __forceinline__ void run() {
        static_assert(Rows::kRows == 1, "a thread has one row of a block");
        Block mine = block(unit.own(0)), now[Team];
#pragma unroll
        for (int i = 0; i < Team; ++i) {
            now[i] = block(i);
        }
        mine.settle(args);
        own.clear();
        ask_own(mine, 0);
        Queries<Rows>::ask(args, shared, unit.row, unit.head, t);
#pragma unroll 1
        for (i32 round = 0; round < unit.rounds(); ++round) {
            asm volatile("" : "+r"(t));  // addresses are worked out again for every round
            const u32 mask = mine.mask();
#pragma unroll
            for (int i = 0; i < Team; ++i) {
                now[i].settle(args);
            }
            ask_slices(now, own.template arrived<true>(args) | own.template arrived<false>(args));
            mine = block(unit.own(round + 1));
#pragma unroll
            for (int i = 0; i < Team; ++i) {
                now[i] = block((round + 1) * Team + i);
            }
            if (unit.own(round) < unit.blocks) {
                store_own(mask, round);
            } else if (round == 0) {
                Queries<Rows>::convert(shared, t);
            }
            mine.settle(args);
            ask_own(mine, slices_arrived());
#pragma unroll
            for (int i = 0; i < Team; ++i) {
                const i32 n = round * Team + i;
                if (n < unit.blocks) {
                    const u32 at = static_cast<u32>(n % kSlices);
                    ptx::barrier_wait(ptx::shared_address(&shared.v_free[at]),
                        (static_cast<u32>(n / kSlices) & 1) ^ 1);
                    slices[i].store(ptx::shared_address(shared.v[at]), t);
                    ptx::barrier_arrive(ptx::shared_address(&shared.v_full[at]));
                }
            }
        }
    }
};

}  // namespace sparrow_sparse
