// Look-ahead of a fetching warp: the selected rows of the coming blocks. The lists are read two blocks before the
// rows are loaded. Queries are prefetched into L2, because their shared memory is free only after the last scores of
// the previous queries.
#pragma once

#include "ptx/copy.cuh"
#include "sm90/sparse/storage.cuh"

namespace sparrow_sparse {

constexpr u32 kFaultSlot = 1;

// A coming block, as lane l of warp w of the fetchers holds it. Lanes 16-31 repeat lanes 0-15. Two means two streams.
// Wide means eight warps with eight keys each, and lanes 8-15 repeat lanes 0-7.
template <bool Two, bool Wide = false>
struct Coming {
    static constexpr u32 kNone = ~0u;
    u32 at = kNone;  // twice its unit, and 1 if it is the first block that needs other queries
    i32 slot = -1;   // of key own_key(l); below zero: nothing to read
    i32 second = 0;  // 1: of the second stream

    __device__ __forceinline__ const SelectionView& stream(const SparseAttendArgs& args) const {
        return args.streams[Two ? second : 0]; }
    __device__ __forceinline__ bool there() const { return at != kNone; }
    __device__ __forceinline__ bool fresh() const { return at & 1; }
    __device__ __forceinline__ u32 unit() const { return at >> 1; }

    // A warp has keys 8w to 8w + 7 and 32 + 8w to 32 + 8w + 7.
    static __device__ __forceinline__ i32 own_key(u32 t) {
        return static_cast<i32>((Wide ? 0 : t / 8 % 2 * 32) + t / 32 * 8 + t % 8); }

    // Converts the list entry to a slot, when it is needed.
    __device__ __forceinline__ void settle(const SparseAttendArgs& args) {
        if constexpr (kEvery) {
            slot = slot_of(slot, own_key(threadIdx.x - 256));  // fetchers follow two math groups
        }
        if (slot >= stream(args).slots) {
            slot = -1;
            if (args.faults != nullptr) {
                atomicOr(args.faults, kFaultSlot);
            }
        }
    }

    // Bit i is set if key 8w + i is valid, bit 8 + i if key 32 + 8w + i is valid.
    __device__ __forceinline__ u32 mask() const { return __ballot_sync(ptx::kFullMask, slot >= 0) & 0xFFFF; }
};

// Writes a warp's part of the valid bits of a block.
__device__ __forceinline__ void write_mask(u64& valid, u32 warp, u32 mask) {
    reinterpret_cast<u8*>(&valid)[warp] = static_cast<u8>(mask);
    reinterpret_cast<u8*>(&valid)[4 + warp] = static_cast<u8>(mask >> 8);
}

// Iterates over the blocks of all units of a thread block, for a fetching warp. Two means up to two streams.
template <int Tiles, i64 RowBytes, bool Two>
struct Ahead {
    using Block = Coming<Two>;
    static constexpr i32 kLine = 128;
    static constexpr i32 kQueryBytes = Tiles * kTileColumns * 2;

    u32 unit;         // where the walk is: a unit,
    i32 block = 0;    // a block of it (two streams only: one stream ends with its unit),
    i32 second = 0;   // of this stream,
    i32 left = 0;     // and blocks until the stream or the unit ends
    const i32* list;  // where this lane's slot of the block stands, or the block's page
    i32 keys;         // how many of the row's keys there are from there on

    __device__ __forceinline__ Ahead(const SparseAttendArgs& args) {
        const Share share(args);
        unit = share.first - (Two ? 0 : share.step);
    }

    // Advances to the next block and loads its slots. If it needs other queries, prefetches them.
    __device__ __forceinline__ Block next(const SparseAttendArgs& args, u32 t) {
        Block c;
        bool fresh = false;
        if (left == 0) {
            const Share share(args);  // worked out again: there are no registers to keep it in
            Unit u;
            for (bool further = !Two;; further = true) {
                if (further) {
                    unit += share.step;
                    block = 0;
                }
                if (unit >= share.end) {
                    unit = share.end;
                    block = 0;
                    return c;
                }
                u = unit_at(args, share, unit);
                if (block < u.blocks) {
                    break;
                }
            }
            const BlockPlace place = place_of(u, block);
            const SelectionView& s = args.streams[place.stream];
            const i32 position = place.position + Block::own_key(t);
            second = Two ? place.stream : 0;
            list = list_of(args, s, u.row) + entry_of(position);
            keys = place.length - position;
            left = place.stream == 0 ? min(u.blocks - block, u.first_blocks - u.block - block) : u.blocks - block;
            fresh = block == 0 && u.fresh;
            if (fresh) {
                const u8* q = reinterpret_cast<const u8*>(args.q + u.row * args.q_stride) + static_cast<i64>(u.head) *
                    kQueryBytes;
                const i32 bytes = min(args.heads - u.head, kHeads) * kQueryBytes;
#pragma unroll 1
                for (i32 at = static_cast<i32>(t) * kLine; at < bytes; at += kFetchers * kLine) {
                    ptx::prefetch_line(q + at);
                }
            }
        }
        c.at = unit << 1 | (fresh ? 1 : 0);
        c.second = second;
        c.slot = keys > 0 ? *list : -1;
        list += kEntries;
        keys -= kKeys;
        --left;
        block += Two ? 1 : 0;
        return c;
    }
};

}  // namespace sparrow_sparse
