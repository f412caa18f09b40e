// Two thread blocks per unit of rows of V4.1: the eight fetching warps. Lane l of warp w has a quarter of row 8w + l %
// 8 of every key block: of a half (four tiles) of an entry it has tile l / 8, of a half of a row of the window it has
// 32 columns of two tiles. Eight lanes thus write the same chunk of eight rows, which the swizzle places in different
// banks.
#pragma once

#include "sm90/sparse/shared_duo_storage.cuh"

namespace sparrow_sparse {

struct SharedDuoFetch {
    using Block = Coming<true, true>;

    // A lane's part of half of a row: 64 codes.
    struct Half {
        uint4 codes[4];  // an entry has its codes in the first two
        u32 scales[2];   // an entry has four scales in the first word; the window has a byte of each word

        __device__ __forceinline__ void clear() {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                codes[i] = zeros();
            }
            const uint4 none = zeros();
            scales[0] = none.x;
            scales[1] = none.y;
        }

        // Loads half `half` of a row, or zeros if the row does not exist.
        __device__ __forceinline__ void load(const u8* row, bool entry, u32 half, u32 quarter) {
            if (row == nullptr) {
                clear();
            } else if (entry) {
                const u8* p = row + half * 128 + quarter * 32;
                codes[0] = load_16(p);
                codes[1] = load_16(p + 16);
                scales[0] = load_4(row + 256 + half * 16 + quarter * 4);
            } else {
                const u8* p = row + half * 256 + quarter * 32;
                codes[0] = load_16(p);
                codes[1] = load_16(p + 16);
                codes[2] = load_16(p + 128);
                codes[3] = load_16(p + 144);
                const uint2 v = load_8(row + 512 + half * 8);
                scales[0] = v.x;
                scales[1] = v.y;
            }
        }

        // Returns a value that depends on every load.
        __device__ __forceinline__ u32 any() const {
            return codes[0].x | codes[1].x | codes[2].x | codes[3].x | scales[0] | scales[1];
        }

        // Converts the codes and stores them to the tiles at `tiles`. `row` is the address of chunk 0 of the row in a
        // tile, relative to the tile.
        __device__ __forceinline__ void store(u32 tiles, u32 row, bool entry, u32 quarter) const {
            if (entry) {
                store_entry(tiles + row + quarter * kTileBytes, scales[0], codes[0], codes[1]);
            } else {
#pragma unroll
                for (u32 i = 0; i < 2; ++i) {
                    store_window((tiles + row + (2 * i + quarter / 2) * kTileBytes) ^ (quarter % 2 << 6),
                        scales[i] >> (8 * quarter) & 0xFF, codes[2 * i], codes[2 * i + 1]);
                }
            }
        }
    };

    const SparseAttendArgs& args;
    SharedDuoStorage& shared;
    const DuoUnit& unit;
    u32 t;
    i32 early[2];  // list entries of the first two key blocks, if these belong to the first stream

    __device__ __forceinline__ u32 quarter() const { return t % 32 / 8; }

    // Loads the first list entries before the length of the row is known.
    __device__ __forceinline__ void load_lists() {
        const SelectionView& s = args.streams[0];
#pragma unroll
        for (i32 i = 0; i < 2; ++i) {
            const i32 position = (unit.block + i) * kKeys + Block::own_key(t);
            early[i] = -1;
            if (position < s.width) {
                early[i] = static_cast<i32>(load_4(reinterpret_cast<const u8*>(s.indices + unit.row * s.index_stride +
                    position)));
            }
        }
    }

    // Returns key block n of the unit; the load of its list entry is still in flight. `after` is zero; it makes the
    // load depend on the value that the caller computed it from.
    __device__ __forceinline__ Block block(i32 n, u32 after = 0) const {
        Block c;
        const BlockPlace place = unit.place<true>(n);
        c.second = place.stream;
        const SelectionView& s = c.stream(args);
        const i32 position = place.position + Block::own_key(t);
        if (n < unit.blocks && position < place.length) {
            c.slot = static_cast<i32>(load_4(reinterpret_cast<const u8*>(s.indices + unit.list * s.index_stride +
                position) + after));
        }
        return c;
    }

    // Returns key block n, which is 0 or 1.
    __device__ __forceinline__ Block first_block(i32 n) const {
        const BlockPlace place = unit.place<true>(n);
        if (place.stream != 0) {
            return block(n);
        }
        Block c;
        c.slot = n < unit.blocks && place.position + Block::own_key(t) < place.length ? n == 0 ? early[0] : early[1]
                                                                                     : -1;
        return c;
    }

    // Returns the address of the row of a lane, or null. `after` as for block.
    __device__ __forceinline__ const u8* row_of(const Block& c, u32 after) const {
        const SelectionView& s = c.stream(args);
        const u8* row = page_of(s, c.slot) + static_cast<u64>(static_cast<u32>(c.slot & s.page_mask)) *
            static_cast<u32>(s.scales) + after;
        return c.slot >= 0 ? row : nullptr;
    }

    __device__ __forceinline__ bool is_entry(const Block& c) const { return SharedFormat::is_entry(c.stream(args)); }

    // Loads both halves of a key block that this thread block owns.
    __device__ __forceinline__ void load_own(Half& values, Half& rest, const Block& c, u32 after) const {
        const u8* row = row_of(c, after);
        values.load(row, is_entry(c), unit.rank, quarter());
        rest.load(row, is_entry(c), unit.rank ^ 1, quarter());
    }

    // Loads the value columns of a key block that the other thread block owns.
    __device__ __forceinline__ void load_other(Half& values, const Block& c, u32 after) const {
        values.load(row_of(c, after), is_entry(c), unit.rank, quarter());
    }

    // Converts the value columns of key block n.
    __device__ __forceinline__ void store_values(const Half& values, i32 n, u32 row, bool entry) const {
        const RingPlace place(n);
        ptx::barrier_wait(ptx::shared_address(&shared.values_free[place.slot]), place.parity ^ 1);
        values.store(ptx::shared_address(shared.values[place.slot]), row, entry, quarter());
        ptx::barrier_arrive(ptx::shared_address(&shared.values_full[place.slot]));
    }

    // Converts the other columns of key block n.
    __device__ __forceinline__ void store_rest(const Half& rest, i32 n, u32 row, bool entry, u32 mask) const {
        ptx::barrier_wait(ptx::shared_address(&shared.rest_free), (static_cast<u32>(n) >> 1 & 1) ^ 1);
        if (t % 32 == 0) {
            reinterpret_cast<u8*>(&shared.valid)[t / 32] = static_cast<u8>(mask);
        }
        rest.store(ptx::shared_address(shared.rest), row, entry, quarter());
        ptx::barrier_arrive(ptx::shared_address(&shared.rest_full));
    }

    // Loops over pairs of key blocks, one of which each thread block owns. The rows of a key block are requested when
    // those of the previous one have arrived, and list entries one key block earlier. One wait thus covers all loads in
    // flight, which the compiler gives one scoreboard.
    __device__ __forceinline__ void run() {
        const i32 rank = static_cast<i32>(unit.rank);
        const u32 zero = static_cast<u32>(args.rows >> 31), row = tile_byte(t / 32 * 8 + t % 8, 0);
        Half own_values, own_rest, other_values;
        own_values.clear();
        own_rest.clear();
        other_values.clear();
        Block own = first_block(rank), other = first_block(rank ^ 1);
        own.settle(args);
        other.settle(args);
        load_own(own_values, own_rest, own, 0);
        load_other(other_values, other, 0);
        Block own_next = block(rank + 2), other_next = block((rank ^ 1) + 2);
        prefetch_row(own_next.stream(args), own_next.slot, quarter() % 2);
#pragma unroll 1
        for (i32 n = rank; n - rank < unit.blocks; n += 2) {
            const i32 m = n ^ 1;  // the key block of the pair that the other thread block owns
            const u32 mask = own.mask();
            const bool own_entry = is_entry(own);
            const u32 after = (own_values.any() | own_rest.any()) & zero;
            if (n > 1) {
                other = other_next;
                other.settle(args);
                load_other(other_values, other, after);
                own_next = block(n + 2, after);
            }
            if (n < unit.blocks) {
                if (rank == 0) {  // the score group needs tiles 0-3 first
                    store_values(own_values, n, row, own_entry);
                    store_rest(own_rest, n, row, own_entry, mask);
                } else {
                    store_rest(own_rest, n, row, own_entry, mask);
                    store_values(own_values, n, row, own_entry);
                }
            }
            const u32 later = other_values.any() & zero;
            own = own_next;
            own.settle(args);
            load_own(own_values, own_rest, own, later);
            other_next = block(m + 2, later);
            if (m < unit.blocks) {
                store_values(other_values, m, row, is_entry(other));
            }
        }
    }
};

}  // namespace sparrow_sparse
