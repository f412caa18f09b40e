// Several thread blocks a unit: the fetching warps of rows that are stored as bf16. Eight lanes copy 128 bytes of a row
// at a time; a warp has eight keys of a block.
#pragma once

#include "sm90/sparse/fetch.cuh"
#include "sm90/sparse/team_storage.cuh"

namespace sparrow_sparse {

// Rows of TileCount * 64 bf16 values as the groups of a team see them.
template <int TileCount>
struct TeamCopiedRows {
    using Type = ptx::Bf16;
    static constexpr int Tiles = TileCount;
    static constexpr int kBf16Tiles = Tiles;
    static constexpr int kFetchers = kTeamFetchers;
    static constexpr u32 kMaskWriters = kFetchers / 32;
    static constexpr i64 kRowBytes = Tiles * 128;
};

template <class Rows, int Team>
struct TeamCopy {
    static constexpr int kSliceTiles = TeamStorage<Team>::kSliceTiles, kSlices = TeamStorage<Team>::kSlices;
    static constexpr int kRows = 2;  // of a block, that a thread copies chunks of
    const SparseAttendArgs& args;
    TeamStorage<Team>& shared;
    const TeamUnit<Team>& unit;
    u32 t;

    struct Slots {
        i32 row[kRows];
    };

    __device__ __forceinline__ u32 key(int i) const { return t / 32 * 8 + i * 4 + t % 32 / 8; }

    // Slots of block n; below zero: nothing to read.
    __device__ __forceinline__ Slots slots(i32 n) const {
        const SelectionView& s = args.streams[0];
        Slots r;
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            const i32 position = n * kKeys + static_cast<i32>(key(i));
            r.row[i] = position < unit.keys ? s.indices[unit.row * s.index_stride + position] : -1;
        }
        return r;
    }

    __device__ __forceinline__ void settle(Slots& c) const {
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            if (c.row[i] >= args.streams[0].slots) {
                c.row[i] = -1;
                if (args.faults != nullptr) {
                    atomicOr(args.faults, kFaultSlot);
                }
            }
        }
    }

    // Which of the warp's eight keys count.
    __device__ __forceinline__ u32 mask(const Slots& c) const {
        u32 bits = 0;
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            const u32 there = __ballot_sync(ptx::kFullMask, c.row[i] >= 0);
            bits |= ((there & 1) | (there >> 7 & 2) | (there >> 14 & 4) | (there >> 21 & 8)) << 4 * i;
        }
        return bits;
    }

    // Copies Count tiles of the rows, from tile `first` on, to tiles at base.
    template <int Count>
    __device__ __forceinline__ void copy(const Slots& c, u32 base, u32 first) const {
        const SelectionView& s = args.streams[0];
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            const i32 slot = c.row[i];
            const u8* source = slot >= 0
                ? page_of(s, slot) + (slot & s.page_mask) * Rows::kRowBytes + first * 128 + t % 8 * 16 : s.base;
#pragma unroll
            for (int tile = 0; tile < Count; ++tile) {
                ptx::copy_16(base + tile * kTileBytes + tile_byte(key(i), t % 8), source + tile * 128, slot >= 0);
            }
        }
    }

    // The own block of a round.
    __device__ __forceinline__ void copy_own(const Slots& c, i32 round) const {
        const u32 k = ptx::shared_address(shared.k), full = ptx::shared_address(&shared.k_full[0]);
        ptx::barrier_wait(ptx::shared_address(&shared.k_free), (static_cast<u32>(round) & 1) ^ 1);
        const u32 bits = mask(c);
        if (t % 32 == 0) {
            reinterpret_cast<u8*>(&shared.valid)[t / 32] = static_cast<u8>(bits);
            ptx::barrier_arrive(full);
        }
        copy<kHalfTiles>(c, k, 0);
        ptx::copies_arrive(full);
        copy<Rows::Tiles - kHalfTiles>(c, k + kHalfTiles * kTileBytes, kHalfTiles);
        ptx::copies_arrive(ptx::shared_address(&shared.k_full[1]));
    }

    // Own columns of block n.
    __device__ __forceinline__ void copy_slice(const Slots& c, i32 n) const {
        const u32 at = static_cast<u32>(n % kSlices);
        ptx::barrier_wait(ptx::shared_address(&shared.v_free[at]), (static_cast<u32>(n / kSlices) & 1) ^ 1);
        copy<kSliceTiles>(c, ptx::shared_address(shared.v[at]), unit.rank * kSliceTiles);
        ptx::copies_arrive(ptx::shared_address(&shared.v_full[at]));
    }

    __device__ __forceinline__ void run() {
        Slots mine = slots(unit.own(0)), now[Team];
#pragma unroll
        for (int i = 0; i < Team; ++i) {
            now[i] = slots(i);
        }
        Queries<Rows>::ask(args, shared, unit.row, unit.head, t);
#pragma unroll 1
        for (i32 round = 0; round < unit.rounds(); ++round) {
            settle(mine);
            if (unit.own(round) < unit.blocks) {
                copy_own(mine, round);
            }
            mine = slots(unit.own(round + 1));
#pragma unroll
            for (int i = 0; i < Team; ++i) {
                const i32 n = round * Team + i;
                if (n < unit.blocks) {
                    settle(now[i]);
                    copy_slice(now[i], n);
                    now[i] = slots(n + Team);
                }
            }
        }
    }
};

}  // namespace sparrow_sparse
