// Fetching warpgroups, part one: queries, and rows that are stored as bf16 and only have to be copied.
//
// Eight lanes copy 128 bytes of a row at a time, chunk by chunk to where the swizzle wants them, so that reads are whole lines and writes
// meet no bank twice. Rows that do not count are filled with zeros and never read: what they hold cannot leak, not even as 0 * NaN.
#pragma once

#include "ptx/wgmma_half.cuh"
#include "sm90/sparse/storage.cuh"

namespace sparrow_sparse {

constexpr u32 kFaultSlot = 1;

// The list's entry for the key at a position. Beyond the row's length it is another key's: a block has one at least, so what is read is
// inside the list. Nothing waits for it before settle.
__device__ __forceinline__ i32 listed_slot(const SelectionView& s, i32 row, i32 position, i32 length) {
    return s.indices[row * s.index_stride + min(position, length - 1)];
}

// Entries to slots: -1 for keys at or beyond the row's length and for slots beyond the pool, which also raise a fault. Entry i is for key
// first + i * step of the block, of whose keys `keys` are there.
template <int N>
__device__ __forceinline__ void settle(const SparseAttendArgs& args, const SelectionView& s, i32 first, i32 step, i32 keys, i32 (&slots)[N]) {
    bool beyond = false;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const i32 slot = first + i * step < keys ? slots[i] : -1;
        beyond |= slot >= s.slots;
        slots[i] = slot >= s.slots ? -1 : slot;
    }
    if (beyond && args.faults != nullptr) {
        atomicOr(args.faults, kFaultSlot);
    }
}

__device__ __forceinline__ const u8* page_of(const SelectionView& s, i32 slot) {
    return s.base + static_cast<i64>(static_cast<u32>(slot) >> s.page_shift) * s.page_bytes;
}

// Copies queries of 64 heads of a row as they are; heads beyond the last are zeros. Thread t of the fetchers.
template <int Tiles>
__device__ __forceinline__ void fetch_queries(const SparseAttendArgs& args, Storage<Tiles>& shared, i32 row, i32 head, u32 t) {
    const u32 chunk = t % 8;
    const u32 base = ptx::shared_address(shared.q);
#pragma unroll 1
    for (u32 r = t / 8; r < kHeads; r += kFetchers / 8) {
        const bool valid = head + static_cast<i32>(r) < args.heads;
        const u16* src = args.q + row * args.q_stride;
        if (valid) {
            src += static_cast<i64>(head + r) * (Tiles * kTileColumns) + chunk * 8;
        }
        const u32 dst = base + tile_byte(r, chunk);
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile) {
            ptx::copy_16(dst + tile * kTileBytes, src + tile * kTileColumns, valid);
        }
    }
    ptx::copies_arrive(ptx::shared_address(&shared.q_full));
}

// Rows of TileCount * 64 bf16 values, copied as they are. run is the life of a fetching thread.
template <int TileCount>
struct CopiedRows {
    using Type = ptx::Bf16;  // of the tiles
    static constexpr int Tiles = TileCount;
    static constexpr int kBf16Tiles = Tiles;  // last tiles that are bf16 whatever the type
    static constexpr u32 kMaskWriters = 1;    // arrivals on the left half beside those of the fetchers
    static constexpr int kRows = kKeys * 8 / kFetchers;  // rows of a block that a thread copies chunks of
    static constexpr int kStep = kFetchers / 8;
    static constexpr i64 kRowBytes = Tiles * 128;

    i32 slots[kRows];
    i32 pair[2];  // slots of keys t and 32 + t, for the mask

    // Asks for the slots of a block.
    __device__ __forceinline__ void look(const SparseAttendArgs& args, const Walk& at, u32 t) {
        const BlockPlace place = place_of(at.unit, at.block);
        const SelectionView& s = args.streams[place.stream];
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            slots[i] = listed_slot(s, at.unit.row, place.position + t / 8 + i * kStep, place.length);
        }
        if (t < 32) {
            pair[0] = listed_slot(s, at.unit.row, place.position + t, place.length);
            pair[1] = listed_slot(s, at.unit.row, place.position + 32 + t, place.length);
        }
    }

    static __device__ __forceinline__ void copy_tiles(const u8* const (&source)[kRows], u32 valid, u32 base, u32 t, int from, int to) {
#pragma unroll
        for (int tile = from; tile < to; ++tile) {
#pragma unroll
            for (int i = 0; i < kRows; ++i) {
                ptx::copy_16(base + tile * kTileBytes + tile_byte(t / 8 + i * kStep, t % 8), source[i] + tile * 128, valid >> i & 1);
            }
        }
    }

    static __device__ __forceinline__ void run(const SparseAttendArgs& args, Storage<Tiles>& shared, u32 t) {
        u32 done = 0, units = 0;  // blocks, and units with keys
        CopiedRows rows;
        Walk at(args);
        if (at.more) {
            rows.look(args, at, t);
        }
        for (; at.more; ++done) {
            const BlockPlace place = place_of(at.unit, at.block);
            const SelectionView& s = args.streams[place.stream];
            const i32 row = at.unit.row, head = at.unit.head, keys = place.length - place.position;
            const bool first = at.block == 0;
            const u8* source[kRows];
            u32 valid = 0;
            u64 mask = 0;
            settle(args, s, t / 8, kStep, keys, rows.slots);
            if (t < 32) {
                settle(args, s, t, 32, keys, rows.pair);
                mask = static_cast<u64>(__ballot_sync(ptx::kFullMask, rows.pair[1] >= 0)) << 32 | __ballot_sync(ptx::kFullMask, rows.pair[0] >= 0);
            }
#pragma unroll
            for (int i = 0; i < kRows; ++i) {
                const i32 slot = rows.slots[i];
                valid |= slot >= 0 ? 1u << i : 0u;
                source[i] = slot >= 0 ? page_of(s, slot) + (slot & s.page_mask) * kRowBytes + t % 8 * 16 : s.base;
            }
            at.step();
            if (at.more) {
                rows.look(args, at, t);
            }
            const u32 b = done & 1, parity = (done >> 1 & 1) ^ 1;
            const u32 base = ptx::shared_address(shared.k[b]), left = ptx::shared_address(&shared.k_full[b][0]);
            ptx::barrier_wait(ptx::shared_address(&shared.k_empty[b][0]), parity);
            if (t == 0) {
                shared.valid[b] = mask;
                ptx::barrier_arrive(left);
            }
            copy_tiles(source, valid, base, t, 0, kHalfTiles);
            ptx::copies_arrive(left);
            if (first) {  // their place may be free later than the keys'
                ptx::barrier_wait(ptx::shared_address(&shared.q_empty), (units & 1) ^ 1);
                fetch_queries<Tiles>(args, shared, row, head, t);
                ++units;
            }
            ptx::barrier_wait(ptx::shared_address(&shared.k_empty[b][1]), parity);
            copy_tiles(source, valid, base, t, kHalfTiles, Tiles);
            ptx::copies_arrive(ptx::shared_address(&shared.k_full[b][1]));
        }
    }
};

}  // namespace sparrow_sparse
