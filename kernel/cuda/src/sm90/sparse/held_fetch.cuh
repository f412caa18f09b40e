// The fetching group of the kernel that holds queries in registers: rows of bf16 values, and queries.
//
// Eight lanes copy 128 bytes of a row at a time, each lane one 16-byte chunk to its swizzled position, so that reads
// are whole cache lines and writes have no bank conflicts. Invalid rows are not read; their keys are filled with zeros,
// so that a NaN in the pool cannot reach the result as 0 * NaN. The copy engine (TMA) loads the queries.
#pragma once

#include "ptx/copy.cuh"
#include "sm90/sparse/ahead.cuh"
#include "sm90/sparse/held_storage.cuh"

namespace sparrow_sparse {

// The position of a lane's next list entry. Page tables are short, so an index is enough; there are no registers for
// an address.
template <bool Every>
struct ListPlace {
    const i32* at;
    __device__ __forceinline__ void set(const SparseAttendArgs& args, i32 row, i32 position) {
        at = list_of(args, args.streams[0], row) + position;
    }
    __device__ __forceinline__ i32 read(const SparseAttendArgs&) const { return *at; }
    __device__ __forceinline__ void step() { at += kKeys; }
};
template <>
struct ListPlace<true> {
    u32 at;
    __device__ __forceinline__ void set(const SparseAttendArgs& args, i32 row, i32 position) {
        at = static_cast<u32>(list_row(args, row)) * static_cast<u32>(args.streams[0].index_stride) +
            static_cast<u32>(entry_of(position));
    }
    __device__ __forceinline__ i32 read(const SparseAttendArgs& args) const { return args.streams[0].indices[at]; }
    __device__ __forceinline__ void step() { ++at; }
};

template <int Tiles>
struct HeldFetchGroup {
    using Shape = HeldShape<Tiles>;
    static constexpr i64 kRowBytes = Tiles * 128;
    static constexpr u32 kRows = 4;  // rows of a block of which a thread copies chunks
    static constexpr i32 kLine = 128;
    static constexpr u32 kNone = ~0u;

    const SparseAttendArgs& args;
    HeldStorage<Tiles>& shared;
    const TensorMap* queries;
    // Positions and phases of the next quarter in the ring of quarters, and of the next block in the ring of side
    // tiles. They are incremented, because a division per quarter takes as long as issuing the copies of half of its
    // rows.
    u32 quarter = 0, quarter_phase = 1, turn = 0, turn_phase = 1;
    u32 place;     // byte offset in a tile of this thread's chunk of its first row
    bool first_lane;

    // The position in the lists: a unit, its remaining blocks, the address of this lane's slot of the next block, and
    // the number of slots of the row from there on.
    u32 unit;
    i32 length;  // keys of the row of the next unit, read ahead
    i32 left = 0;
    ListPlace<kEvery> list;
    i32 keys;
    // For the next block: the slot of this lane's key, or its page until the rows are located; negative if there is
    // nothing to read. It is read one block before its rows are loaded. fresh means that it is the first block that
    // needs the queries of its unit.
    i32 slot = -1;
    bool fresh = false;

    u32 source[kRows];  // address of each row, in units of 16 bytes from the start of the pool; kNone: row is not read

    __device__ __forceinline__ HeldFetchGroup(const SparseAttendArgs& a, HeldStorage<Tiles>& s, const TensorMap* q)
        : args(a), shared(s), queries(q) {
        place = tile_byte(own_key(lane() / 8), lane() % 8);
        first_lane = lane() == 0;
        unit = Share(args).first - Share(args).step;
        length = held_length(args, Share(args).first);
    }

    // Returns the thread's number in the group. It is read again each time, because there are no registers to keep it
    // and values derived from it.
    static __device__ __forceinline__ u32 thread() {
        u32 r;
        asm volatile("mov.u32 %0, %%tid.x;" : "=r"(r));
        return r % kFetchers;
    }
    static __device__ __forceinline__ u32 warp() { return thread() / 32; }
    static __device__ __forceinline__ u32 lane() { return thread() % 32; }

    // Returns the key of a block whose slot lane l of a warp reads. A warp has keys 8w to 8w + 7 and 32 + 8w to 32 +
    // 8w + 7.
    static __device__ __forceinline__ i32 own_key(u32 l) {
        return static_cast<i32>(l / 8 % 2 * 32 + warp() * 8 + l % 8);
    }

    // Advances to the next block, loads its slots and prefetches its queries into L2. It ends at the last unit of the
    // thread block.
    __device__ __forceinline__ void step() {
        fresh = false;
#pragma unroll 1
        while (left == 0) {
            unit += Share(args).step;
            if (unit >= Share(args).end) {
                return;
            }
            const SelectionView& s = args.streams[0];
            if constexpr (kEvery) {  // length of the row; not read ahead, because there is no register for it
                length = held_length(args, unit);
            }
            const HeldUnit u(args, unit, length);
            left = u.blocks;
            fresh = u.fresh;
            const i32 position = u.first * kKeys + own_key(lane());
            keys = clipped(s, length) - position;
            list.set(args, row_of(args, unit), position);
            if constexpr (!kEvery) {
                length = held_length(args, unit + Share(args).step);
            }
        }
        if (fresh) {
            prefetch_queries();
        }
        slot = keys > 0 ? list.read(args) : -1;
        list.step();
        keys -= kKeys;
        --left;
    }

    __device__ __forceinline__ void prefetch_queries() const {
        constexpr i32 kQueryBytes = Tiles * kTileColumns * 2;
        const i32 head = head_of(args, unit), bytes = min(args.heads - head, kHeads) * kQueryBytes;
        const u8* row = reinterpret_cast<const u8*>(args.q + row_of(args, unit) * args.q_stride);
        const u8* q = row + static_cast<i64>(head) * kQueryBytes;
#pragma unroll 1
        for (i32 at = static_cast<i32>(thread()) * kLine; at < bytes; at += kFetchers * kLine) {
            ptx::prefetch_line(q + at);
        }
    }

    // Computes the addresses of the rows of the next block. Lane l copies chunk l % 8; row i is slot i * 4 + l / 8 of
    // the warp's 16.
    __device__ __forceinline__ void locate() {
        const SelectionView& s = args.streams[0];
        slot = slot_of(slot, own_key(lane()));
        if (slot >= s.slots) {
            slot = -1;
            if (args.faults != nullptr) {
                atomicOr(args.faults, kFaultSlot);
            }
        }
        const u32 page16 = static_cast<u32>(s.page_bytes >> 4);
#pragma unroll
        for (u32 i = 0; i < kRows; ++i) {
            const i32 row = __shfl_sync(ptx::kFullMask, slot, i * 4 + lane() / 8);
            source[i] = row < 0 ? kNone : (static_cast<u32>(row) >> s.page_shift) * page16 + (row & s.page_mask) *
                static_cast<u32>(kRowBytes / 16) + lane() % 8;
        }
    }

    // Copies Count tiles of the rows, starting at tile `from`, to consecutive tiles.
    template <int Count>
    __device__ __forceinline__ void copy_tiles(int from, u32 to) const {
        // Rows 0 and 1 are four keys apart; rows 2 and 3 are 32 keys after them.
        const u32 first = to + place, second = to + ((place + 4 * 128) ^ 64);
#pragma unroll
        for (u32 i = 0; i < kRows; ++i) {
            const u32 dst = (i % 2 ? second : first) + i / 2 * 32 * 128;
            u32 row = source[i];
            asm volatile("" : "+r"(row));  // there are no registers to keep 64-bit addresses in
            const u8* src = args.streams[0].base + static_cast<i64>(row) * 16 + from * 128;
#pragma unroll
            for (int tile = 0; tile < Count; ++tile) {
                ptx::copy_16(dst + tile * kTileBytes, src + tile * 128, row != kNone);
            }
        }
    }

    __device__ __forceinline__ void advance() {
        if (++quarter == Shape::kRing) {
            quarter = 0;
            quarter_phase ^= 1;
        }
    }

    __device__ __forceinline__ void next_entry() {
        if (++turn == kTurns) {
            turn = 0;
            turn_phase ^= 1;
        }
    }

    // Waits until the next quarter is free. For the last quarter of an entry with rotary tiles, also waits for its
    // side tile.
    __device__ __forceinline__ void wait_empty(bool last) const {
        ptx::barrier_wait(ptx::shared_address(&shared.empty[quarter]), quarter_phase);
        if (Shape::kRotary && last) {
            static_assert(!Shape::kRotary || Shape::kSides == kTurns, "side tiles and turns go together");
            ptx::barrier_wait(ptx::shared_address(&shared.side_empty[turn]), turn_phase);
        }
    }

    // Loads the queries of the next block's unit into the ring.
    __device__ __forceinline__ void ask_queries() {
#pragma unroll 1
        for (int part = 0; part < kQuarters; ++part) {
            const bool rotary = Shape::kRotary && part == kQuarters - 1;
            wait_empty(rotary);
            const u32 full = ptx::shared_address(&shared.full[quarter]);
            if (thread() == 0) {
                const i32 row = row_of(args, unit), head = head_of(args, unit);
                ptx::fence_async_proxy();  // threads wrote keys and weights to this memory
                ptx::barrier_expect(full, kQuarterBytes + (rotary ? kTileBytes : 0));
                const u32 to = ptx::shared_address(shared.ring[quarter]);
                const i32 column = part * kQuarterTiles * kTileColumns;
                ptx::load_3d(to, queries, full, column, head, row, ptx::kEvictFirst);
                ptx::load_3d(to + kTileBytes, queries, full, column + kTileColumns, head, row, ptx::kEvictFirst);
                if (rotary) {
                    ptx::load_3d(ptx::shared_address(shared.side[Shape::kRotary ? turn : 0]), queries, full,
                        column + 2 * kTileColumns, head, row, ptx::kEvictFirst);
                }
            } else {
                ptx::barrier_arrive(full);
            }
            if (first_lane) {
                ptx::barrier_arrive(full);
            }
            advance();
        }
        next_entry();
    }

    // Copies a quarter of the block's rows; the last quarter includes the rotary tile. mask holds the warp's valid
    // bits, which are written with the first quarter.
    template <int Part>
    __device__ __forceinline__ void copy_quarter(u32 mask) {
        wait_empty(Part == kQuarters - 1);
        const u32 full = ptx::shared_address(&shared.full[quarter]);
        if (first_lane) {
            if (Part == 0) {  // the valid bits of the block three entries earlier are no longer read
                write_mask(shared.valid[turn], warp(), mask);
            }
            ptx::barrier_arrive(full);
        }
        copy_tiles<kQuarterTiles>(Part * kQuarterTiles, ptx::shared_address(shared.ring[quarter]));
        if (Shape::kRotary && Part == kQuarters - 1) {
            copy_tiles<1>(kQuarters * kQuarterTiles, ptx::shared_address(shared.side[Shape::kRotary ? turn : 0]));
        }
        ptx::copies_arrive(full);
        advance();
    }

    __device__ __forceinline__ void run() {
        step();
#pragma unroll 1
        while (unit < Share(args).end) {
            if (fresh) {
                ask_queries();
            }
            locate();
            const u32 mask = __ballot_sync(ptx::kFullMask, slot >= 0) & 0xFFFF;
            step();
            copy_quarter<0>(mask);
            copy_quarter<1>(mask);
            copy_quarter<2>(mask);
            copy_quarter<3>(mask);
            next_entry();
        }
    }
};

}  // namespace sparrow_sparse
