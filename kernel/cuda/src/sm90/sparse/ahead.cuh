// Look-ahead of a fetching warp: reads the slots of the selected rows two key blocks before the rows are loaded.
// Queries are prefetched into L2, because their shared memory is free only after the last scores of the previous
// queries.
#pragma once

#include "ptx/copy.cuh"
#include "sm90/sparse/storage.cuh"

namespace sparrow_sparse {

constexpr u32 kFaultSlot = 1;

// A future key block, as lane l of warp w of the fetching warpgroup holds it: one slot per lane. Lanes 16-31 repeat
// lanes 0-15. Two: rows have up to two streams. Wide: there are eight fetching warps with eight keys each, and lanes
// 8-31 repeat lanes 0-7.
template <bool Two, bool Wide = false>
struct Coming {
    static constexpr u32 kNone = ~0u;
    u32 at = kNone;  // unit number * 2, plus 1 if this is the first block that needs the queries of its unit
    i32 slot = -1;   // slot of key own_key(l) in the pool; negative: no row to read
    i32 second = 0;  // 1: the slot belongs to the second stream

    __device__ __forceinline__ const SelectionView& stream(const SparseAttendArgs& args) const {
        return args.streams[Two ? second : 0]; }
    __device__ __forceinline__ bool there() const { return at != kNone; }
    __device__ __forceinline__ bool fresh() const { return at & 1; }
    __device__ __forceinline__ u32 unit() const { return at >> 1; }

    // A warp has keys 8w to 8w + 7 and 32 + 8w to 32 + 8w + 7.
    static __device__ __forceinline__ i32 own_key(u32 t) {
        return static_cast<i32>((Wide ? 0 : t / 8 % 2 * 32) + t / 32 * 8 + t % 8); }

    // Converts the list entry to a slot. Called only when the slot is needed, so that the load of the entry can
    // overlap.
    __device__ __forceinline__ void settle(const SparseAttendArgs& args) {
        if constexpr (kEvery) {
            slot = slot_of(slot, own_key(threadIdx.x - 256));  // threads 0-255 are the two math warpgroups
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

// Writes the 16 valid bits of a warp's keys to the 64 valid bits of a block: byte w and byte 4 + w.
__device__ __forceinline__ void write_mask(u64& valid, u32 warp, u32 mask) {
    reinterpret_cast<u8*>(&valid)[warp] = static_cast<u8>(mask);
    reinterpret_cast<u8*>(&valid)[4 + warp] = static_cast<u8>(mask >> 8);
}

// Iterates over the key blocks of all units of a thread block, for a fetching warp. Two and Wide: as for Coming.
template <int Tiles, i64 RowBytes, bool Two, bool Wide = false>
struct Ahead {
    using Block = Coming<Two, Wide>;
    static constexpr i32 kLine = 128;
    static constexpr i32 kUnknown = -0x7FFFFFFF - 1;
    static constexpr i32 kQueryBytes = Tiles * kTileColumns * 2;

    u32 unit;         // number of the current unit
    // Number of the next block in the unit; counted only for two streams, because one stream ends with its unit.
    i32 block = 0;
    i32 second = 0;   // 1: the next block belongs to the second stream
    i32 left = 0;     // blocks left until the stream or the unit ends
    const i32* list;  // address of the list entry (slot, or page with kEvery) of this lane's key in the next block
    i32 keys;         // keys of the row from this lane's key on; zero or negative: no key

    __device__ __forceinline__ Ahead(const SparseAttendArgs& args) {
        const Share share(args);
        unit = share.first - (Two ? 0 : share.step);
    }

    // Returns the next block and loads its list entries. If the block needs other queries, prefetches the queries into
    // L2. early: the lane's list entry if the block belongs to the first stream of the first unit, or kUnknown.
    __device__ __forceinline__ Block next(const SparseAttendArgs& args, u32 t, i32 early = kUnknown) {
        Block c;
        bool fresh = false;
        if (left == 0) {
            const Share share(args);  // computed again for each unit, because there are no registers to keep it in
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
                for (i32 at = static_cast<i32>(t) * kLine; at < bytes; at += (Wide ? 2 : 1) * kFetchers * kLine) {
                    ptx::prefetch_line(q + at);
                }
            }
        }
        c.at = unit << 1 | (fresh ? 1 : 0);
        c.second = second;
        if (early != kUnknown && second == 0 && unit == Share(args).first) {
            c.slot = keys > 0 ? early : -1;
        } else {
            c.slot = keys > 0 ? *list : -1;
        }
        list += kEntries;
        keys -= kKeys;
        --left;
        block += Two ? 1 : 0;
        return c;
    }
};

}  // namespace sparrow_sparse
