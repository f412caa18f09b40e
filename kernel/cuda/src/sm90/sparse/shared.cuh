// Fetching warpgroups for rows of DeepSeek-V4.1 (shared_rows.cuh).
//
// Codes are staged in shared memory in pieces: 128 bytes of each of the 64 rows of a block. An entry has two pieces of
// four tiles each, a row of the window four pieces of two tiles each. There is room for two pieces. As soon as a warp
// has the codes of a piece in registers, it requests the piece after next. Every warp stages its own eight rows, so
// that it waits for no other warp. Codes are not loaded to registers, because the compiler gives all such loads one
// scoreboard: each wait for a part of a block would then also wait for the parts that were requested later. Only scales
// and lists are loaded to registers. They are requested one block ahead, and a warp waits for them once per block.
//
// Lane l of a warp converts quarter l / 8 of a piece of row l % 8: a tile of an entry, or half of a tile of the window.
// Eight lanes thus write the same chunk of eight rows, which the swizzle places in different banks.
#pragma once

#include "sm90/sparse/shared_rows.cuh"

namespace sparrow_sparse {

__device__ __forceinline__ uint4 read_16(u32 address) {
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address) : "memory");
    return v;
}

// Copies 16 bytes of a row, or writes 16 zero bytes if the row does not exist.
__device__ __forceinline__ void copy_part(u32 dst, u64 src, bool there) {
    const u32 bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
}

// The shared memory of the kernel: the rows of a staged piece are in the order of warps and have the swizzle of a tile.
struct SharedStorage : Storage<8> {
    static constexpr u32 kPieceBytes = 128, kSlotBytes = kKeys * kPieceBytes;
    alignas(128) u8 codes[2][kSlotBytes];
};

// Replaces ConvertedRows.
struct SharedRows : SharedFormat {
    static constexpr int kFetchers = sparrow_sparse::kFetchers;  // threads of the score group, which load queries
    static constexpr int kFetchThreads = 256;
    static constexpr bool kQuarters = true;
    static constexpr u32 kWarpRows = 8;  // rows of a block that a warp fetches
    static constexpr u32 kPieceBytes = SharedStorage::kPieceBytes;
    using Held = SharedRows;
    using Blocks = Ahead<Tiles, kRowBytes, kTwoStreams, true>;
    using Block = Blocks::Block;
    using Codes = uint4[2];  // 32 bytes of a piece of the lane's row

    u32 t;
    u32 staged;  // address of the rows of this warp in the first piece
    // The scales of the lane's tile in both pieces of an entry (x and y), or all exponents of a row of the window.
    uint4 scales, next_scales;

    static constexpr bool asks_queries() { return true; }

    // The block after next, whose list entries are being loaded.
    struct Later {
        i32 slot;
        u32 state;  // bit 0: the block belongs to the second stream; bit 1: it exists

        __device__ __forceinline__ Later(const Block& c) : slot(c.slot), state(c.second | (c.there() ? 2 : 0)) {}
        __device__ __forceinline__ Block block() const {
            Block c;
            c.at = state & 2 ? 0 : Block::kNone;
            c.slot = slot;
            c.second = state & 1;
            return c;
        }
    };

    // What is kept of a block whose rows have been requested: bits 0-7 are the valid bits of the rows of the warp.
    static constexpr u32 kEntry = 1 << 8, kThere = 1 << 9;

    static __device__ __forceinline__ u32 summary(const SparseAttendArgs& args, const Block& c) {
        return (c.mask() & 0xFF) | (is_entry(c.stream(args)) ? kEntry : 0) | (c.there() ? kThere : 0);
    }

    // Returns the address of the row of the lane's own key, or null.
    static __device__ __forceinline__ u64 address_of(const SparseAttendArgs& args, const Block& c) {
        const SelectionView& s = c.stream(args);
        const u64 row = reinterpret_cast<u64>(page_of(s, c.slot)) +
            static_cast<u64>(static_cast<u32>(c.slot & s.page_mask)) * static_cast<u32>(s.scales);
        return c.slot >= 0 ? row : 0;
    }

    __device__ __forceinline__ u32 quarter() const { return t % 32 / 8; }

    // Requests a piece of the rows whose addresses the lanes have. Eight lanes copy the 128 bytes of a row. `after` is
    // zero, from the take that freed the memory.
    __device__ __forceinline__ void ask(u64 own, u32 piece, u32 after = 0) const {
        const u32 lane = t % 32, to = staged + piece % 2 * SharedStorage::kSlotBytes + after;
#pragma unroll
        for (u32 i = 0; i < kWarpRows / 4; ++i) {
            const u64 row = __shfl_sync(ptx::kFullMask, own, i * 4 + lane / 8);
            copy_part(to + tile_byte(i * 4 + lane / 8, lane % 8), row + piece * kPieceBytes + lane % 8 * 16, row != 0);
        }
        ptx::copies_commit();
    }

    // Loads the scales of the lane's row of the next block.
    __device__ __forceinline__ void ask_scales(const SparseAttendArgs& args, const Block& c, u64 own) {
        const u8* row = reinterpret_cast<const u8*>(own);
        if (row == nullptr) {
            next_scales = zeros();
        } else if (is_entry(c.stream(args))) {
            next_scales.x = load_4(row + 256 + quarter() * 4);
            next_scales.y = load_4(row + 272 + quarter() * 4);
            next_scales.z = next_scales.w = 0;
        } else {
            next_scales = load_16(row + 512);
        }
    }

    // Takes the scales that the last ask_scales requested. Returns zero, but only after these loads and the load of the
    // next block's slots have arrived. Loads that depend on the result are therefore requested after the wait, which
    // would otherwise include them: the compiler gives all loads one scoreboard.
    __device__ __forceinline__ u32 arrived(const SparseAttendArgs& args, i32 slot) {
        scales = next_scales;
        return (static_cast<u32>(slot) | scales.x | scales.y | scales.z | scales.w) &
            static_cast<u32>(args.rows >> 31);
    }

    // Reads the lane's codes of a piece whose copies by this lane have completed. Returns zero, but only after the
    // codes have been read: copies into the same memory could otherwise overtake reads that wait for its port.
    __device__ __forceinline__ u32 take(const SparseAttendArgs& args, Codes& codes, u32 piece) const {
        __syncwarp();  // the copies by all lanes have completed
        const u32 from = staged + piece % 2 * SharedStorage::kSlotBytes;
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
            codes[i] = read_16(from + tile_byte(t % 8, quarter() * 2 + i));
        }
        __syncwarp();  // all lanes have read, so that the memory of the piece is free
        return (codes[0].x | codes[1].x) & static_cast<u32>(args.rows >> 31);
    }

    // Returns the address of chunk 0 of the lane's row in the first tile, with the swizzle of the row.
    __device__ __forceinline__ u32 chunks_at(u32 base) const { return base + tile_byte(t / 32 * kWarpRows + t % 8, 0); }

    // Converts and stores a lane's codes: 64 columns of an entry.
    template <u32 Piece>
    __device__ __forceinline__ void convert_entry(u32 base, const Codes& codes) const {
        store_entry(chunks_at(base) + (Piece * 4 + quarter()) * kTileBytes, Piece == 0 ? scales.x : scales.y, codes[0],
            codes[1]);
    }

    // Converts and stores a lane's codes: 32 columns of a row of the window.
    template <u32 Piece>
    __device__ __forceinline__ void convert_window(u32 base, const Codes& codes) const {
        const u32 word = Piece == 0 ? scales.x : Piece == 1 ? scales.y : Piece == 2 ? scales.z : scales.w;
        store_window((chunks_at(base) + (Piece * 2 + quarter() / 2) * kTileBytes) ^ (quarter() % 2 << 6),
            word >> (8 * quarter()) & 0xFF, codes[0], codes[1]);
    }

    // Waits until the right half of the warp's quarter of the keys is free.
    __device__ __forceinline__ void wait_free(Storage<Tiles>& shared, u32 b, u32 parity) const {
        const u32 q = t / 64;
        ptx::barrier_wait(ptx::shared_address(q < 3 ? &shared.quarter_empty[b][q] : &shared.k_empty[b][1]), parity);
    }

    // Prefetches what the first unit of the thread block needs.
    static __device__ __forceinline__ void prefetch(const SparseAttendArgs& args) {
        const Share share(args);
        if (share.first < share.end) {
            prefetch_first<1>(args, row_at(args, share.first), head_at(args, share.first),
                static_cast<i32>(share.first % static_cast<u32>(args.segments)) * args.segment_blocks, 0);
        }
    }

    // Loads the lane's list entries of the first two key blocks of the first unit, if these belong to the first stream.
    static __device__ __forceinline__ void load_lists(i32 (&early)[2], const SparseAttendArgs& args, u32 thread) {
        const Share share(args);
        const SelectionView& s = args.streams[0];
        const i32 block = static_cast<i32>(share.first % static_cast<u32>(args.segments)) * args.segment_blocks;
#pragma unroll
        for (i32 i = 0; i < 2; ++i) {
            const i32 position = (block + i) * kKeys + Block::own_key(thread);
            early[i] = Blocks::kUnknown;
            if (share.first < share.end && position < s.width) {
                early[i] = static_cast<i32>(load_4(reinterpret_cast<const u8*>(s.indices +
                    row_at(args, share.first) * s.index_stride + position)));
            }
        }
    }

    // The main loop of a fetching thread.
    static __device__ __forceinline__ void run(const SparseAttendArgs& args, Storage<Tiles>& storage, u32 thread) {
        SharedStorage& shared = static_cast<SharedStorage&>(storage);
        SharedRows rows;
        rows.t = thread;
        rows.staged = ptx::shared_address(shared.codes) + thread / 32 * (kWarpRows * kPieceBytes);
        u32 done = 0;  // key blocks that this thread has processed
        // The first list entries are loaded at the same time as the lengths, so that the first rows are requested
        // before the queries, which occupy the memory system for some thousand clocks.
        i32 early[2];
        load_lists(early, args, thread);
        Blocks ahead(args);
        Block next = ahead.next(args, thread, early[0]);
        Later later = ahead.next(args, thread, early[1]);
        next.settle(args);
        u64 here = address_of(args, next);
        rows.ask(here, 0);
        rows.ask(here, 1);
        rows.ask_scales(args, next, here);
        for (u32 now = summary(args, next); now & kThere; ++done) {
            // Addresses are computed again for every block, because there are no registers to keep them.
            asm volatile("" : "+r"(rows.t));
            const u32 b = done & 1, parity = (done >> 1 & 1) ^ 1, base = ptx::shared_address(shared.k[b]);
            // The only wait for loads to registers. They were requested one block ago.
            const u32 after = rows.arrived(args, later.slot);
            ahead.list += after;
            next = later.block();
            next.settle(args);
            u64 there = address_of(args, next);
            there += there == 0 ? 0 : after;
            rows.ask_scales(args, next, there);
            const u32 following = summary(args, next);
            later = ahead.next(args, rows.t);
            const bool entry = now & kEntry;
            Codes codes;

            ptx::copies_wait<1>();
            u32 taken = rows.take(args, codes, 0);
            rows.ask(entry ? there : here, entry ? 0 : 2, taken);
            ptx::barrier_wait(ptx::shared_address(&shared.k_empty[b][0]), parity);
            if (rows.t % 32 == 0) {
                reinterpret_cast<u8*>(&shared.valid[b])[rows.t / 32] = static_cast<u8>(now);
            }
            if (entry) {
                rows.convert_entry<0>(base, codes);
            } else {
                rows.convert_window<0>(base, codes);
                ptx::copies_wait<1>();
                taken = rows.take(args, codes, 1);
                rows.ask(here, 3, taken);
                rows.convert_window<1>(base, codes);
            }
            ptx::barrier_arrive(ptx::shared_address(&shared.k_full[b][0]));

            ptx::copies_wait<1>();
            taken = rows.take(args, codes, entry ? 1 : 2);
            rows.ask(there, entry ? 1 : 0, taken);
            rows.wait_free(shared, b, parity);
            if (entry) {
                rows.convert_entry<1>(base, codes);
            } else {
                rows.convert_window<2>(base, codes);
                ptx::copies_wait<1>();
                taken = rows.take(args, codes, 3);
                rows.ask(there, 1, taken);
                rows.convert_window<3>(base, codes);
            }
            ptx::barrier_arrive(ptx::shared_address(&shared.k_full[b][1]));
            now = following;
            here = there;
        }
        ptx::copies_wait<0>();
    }
};

template <>
constexpr bool interleaved<SharedRows>() {
    return true;
}
template <>
constexpr int key_shift<SharedRows>() {
    return SharedFormat::kShift;
}
template <>
constexpr int fetch_threads<SharedRows>() {
    return SharedRows::kFetchThreads;
}

}  // namespace sparrow_sparse
