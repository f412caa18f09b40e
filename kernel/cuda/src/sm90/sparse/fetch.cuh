// Fetching warpgroups, part one: queries, and rows that are stored as bf16 and only have to be copied.
//
// Eight lanes copy 128 bytes of a row at a time, chunk by chunk to where the swizzle wants them, so that reads are whole lines and writes
// meet no bank twice. Rows that do not count are filled with zeros and never read: what they hold cannot leak, not even as 0 * NaN.
#pragma once

#include "sm90/sparse/storage.cuh"

namespace sparrow_sparse {

constexpr u32 kFaultSlot = 1;

// Selected slot of the key at a position, or -1 when there is nothing to attend to.
__device__ __forceinline__ i32 slot_at(const SparseAttendArgs& args, i32 stream, i32 row, i32 position, i32 length) {
    const SelectionView& s = args.streams[stream];
    if (position >= length) {
        return -1;
    }
    const i32 slot = s.indices[row * s.index_stride + position];
    if (slot >= s.slots) {
        if (args.faults != nullptr) {
            atomicOr(args.faults, kFaultSlot);
        }
        return -1;
    }
    return slot;
}

__device__ __forceinline__ const u8* page_of(const SelectionView& s, i32 slot) {
    return s.base + static_cast<i64>(static_cast<u32>(slot) >> s.page_shift) * s.page_bytes;
}

// Copies the unit's queries; heads beyond the last are zeros. Thread t of the fetchers.
template <int Tiles, int Fetchers>
__device__ __forceinline__ void fetch_queries(const SparseAttendArgs& args, Storage<Tiles>& shared, const Unit& unit, u32 t) {
    const u32 chunk = t % 8;
    const u32 base = ptx::shared_address(shared.q);
#pragma unroll 1
    for (u32 r = t / 8; r < kHeads; r += Fetchers / 8) {
        const bool valid = unit.head + static_cast<i32>(r) < args.heads;
        const u16* src = args.q + unit.row * args.q_stride;
        if (valid) {
            src += static_cast<i64>(unit.head + r) * (Tiles * kTileColumns) + chunk * 8;
        }
        const u32 dst = base + tile_byte(r, chunk);
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile) {
            ptx::copy_16(dst + tile * kTileBytes, src + tile * kTileColumns, valid);
        }
    }
    ptx::copies_arrive(ptx::shared_address(&shared.q_full));
}

// Rows of Tiles * 64 bf16 values, copied as they are.
template <int Tiles, class R>
struct CopiedRows {
    static constexpr u32 kMaskWriters = 1;
    static constexpr bool kHeldInRegisters = false;  // rows wait in registers while their buffer is in use
    static constexpr int kRows = kKeys * 8 / R::Fetchers;  // rows of a block that a thread copies chunks of
    static constexpr i64 kRowBytes = Tiles * 128;

    const u8* source[kRows];
    bool valid[kRows];
    u64 mask;
    i32 ahead[kRows];  // slots of the next block
    i32 ahead_low, ahead_high;  // slots of keys t and 32 + t, for the mask

    __device__ __forceinline__ void look_ahead(const SparseAttendArgs& args, const Unit& unit, i32 block, u32 t) {
        const BlockPlace place = place_of(unit, block);
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            ahead[i] = slot_at(args, place.stream, unit.row, place.position + t / 8 + i * (R::Fetchers / 8), place.length);
        }
        if (t < 32) {
            ahead_low = slot_at(args, place.stream, unit.row, place.position + t, place.length);
            ahead_high = slot_at(args, place.stream, unit.row, place.position + 32 + t, place.length);
        }
    }

    // Turns the slots of a block into addresses, and reads those of the next.
    __device__ __forceinline__ void prepare(const SparseAttendArgs& args, const Unit& unit, i32 block, u32 t) {
        if (block == 0) {
            look_ahead(args, unit, 0, t);
        }
        const SelectionView& s = args.streams[place_of(unit, block).stream];
        if (t < 32) {
            const u32 low = __ballot_sync(ptx::kFullMask, ahead_low >= 0);
            mask = static_cast<u64>(__ballot_sync(ptx::kFullMask, ahead_high >= 0)) << 32 | low;
        }
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            valid[i] = ahead[i] >= 0;
            source[i] = valid[i] ? page_of(s, ahead[i]) + (ahead[i] & s.page_mask) * kRowBytes + t % 8 * 16 : s.base;
        }
        if (block + 1 < unit.blocks) {
            look_ahead(args, unit, block + 1, t);
        }
    }

    __device__ __forceinline__ void copy_tiles(u32 base, u32 t, int from, int to) const {
#pragma unroll
        for (int tile = from; tile < to; ++tile) {
#pragma unroll
            for (int i = 0; i < kRows; ++i) {
                const u32 dst = base + tile * kTileBytes + tile_byte(t / 8 + i * (R::Fetchers / 8), t % 8);
                ptx::copy_16(dst, source[i] + tile * 128, valid[i]);
            }
        }
    }

    // Fills buffer b once its halves are free; parity is that of the wait for them.
    __device__ __forceinline__ void fill(const SparseAttendArgs&, Storage<Tiles>& shared, u32 b, u32 parity, u32 t) {
        const u32 base = ptx::shared_address(shared.k[b]);
        ptx::barrier_wait(ptx::shared_address(&shared.k_empty[b][0]), parity);
        const u32 left = ptx::shared_address(&shared.k_full[b][0]), right = ptx::shared_address(&shared.k_full[b][1]);
        if (t == 0) {
            shared.valid[b] = mask;
            ptx::barrier_arrive(left);
        }
        copy_tiles(base, t, 0, kHalfTiles);
        ptx::copies_arrive(left);
        ptx::barrier_wait(ptx::shared_address(&shared.k_empty[b][1]), parity);
        copy_tiles(base, t, kHalfTiles, Tiles);
        ptx::copies_arrive(right);
    }
};

// The life of the fetching threads. Rows is how one layout's rows are fetched: prepare reads what a block needs without waiting for
// shared memory, fill puts it there.
template <int Tiles, class R, class Rows>
__device__ void fetch(const SparseAttendArgs& args, Storage<Tiles>& shared) {
    const u32 t = threadIdx.x - 256;
    const i64 count = unit_count(args);
    u32 done = 0, units = 0;  // blocks, and units with keys
    Rows rows;
    for (i64 u = blockIdx.x; u < count; u += gridDim.x) {
        const Unit unit = unit_at(args, u);
        for (i32 block = 0; block < unit.blocks; ++block, ++done) {
            rows.prepare(args, unit, block, t);
            rows.fill(args, shared, done % 2, (done / 2 & 1) ^ 1, t);
            if (block == 0) {  // after the first keys, whose buffer is free earlier than the queries'
                ptx::barrier_wait(ptx::shared_address(&shared.q_empty), (units & 1) ^ 1);
                fetch_queries<Tiles, R::Fetchers>(args, shared, unit, t);
                ++units;
            }
        }
    }
}

}  // namespace sparrow_sparse
