// Prefetches rows into L2 while earlier blocks are computed. Selected rows are scattered over device memory, and the
// loads of one block are too few in flight to hide the memory latency. The value group issues the prefetches, because
// it has few other instructions. Two of its threads alternate over the lines of a row.
#pragma once

#include "ptx/copy.cuh"
#include "sm90/sparse/storage.cuh"

namespace sparrow_sparse {

// Prefetches half of the lines of a row into L2: even lines (half 0) or odd lines (half 1).
template <u32 RowBytes, u32 Line>
__device__ __forceinline__ void prefetch_lines(const u8* row, u32 half) {
#pragma unroll
    for (u32 i = 0; i < (RowBytes + 2 * Line - 1) / (2 * Line); ++i) {
        ptx::prefetch_line(row + min((2 * i + half) * Line, RowBytes - 16));
    }
}

template <class Rows>
struct Scout {
    // Key blocks between the block that is multiplied and the block whose slots are loaded.
    static constexpr i32 kAhead = 5;
    static constexpr u32 kLine = 128;

    i32 slot = -1;   // slot of key t / 2 of the block looked up last, or its page with kEvery; negative: no row
    i32 second = 0;  // 1: the slot belongs to the second stream

    __device__ __forceinline__ const SelectionView& stream(const SparseAttendArgs& args) const {
        return args.streams[Rows::kTwoStreams ? second : 0]; }

    // Loads the slots of the block that is kAhead blocks after `block` of the unit. After the last block of the row,
    // loads the slots of the first blocks of next_row; a negative next_row means there is no next row.
    __device__ __forceinline__ void look(const SparseAttendArgs& args, const Unit& unit, i32 block, i32 next_row) {
        const i32 key = static_cast<i32>(threadIdx.x % 128 / 2), b = block + kAhead;
        const BlockPlace place = place_of(unit, b);
        i32 row = unit.row, position = place.position + key;
        second = Rows::kTwoStreams ? place.stream : 0;
        slot = -1;
        bool there = position < place.length;
        const i32 all = unit.first_blocks + (unit.second_len + kKeys - 1) / kKeys;
        if (unit.block + b >= all) {
            second = 0;
            row = next_row;
            position = (unit.block + b - all) * kKeys + key;
            // A list entry beyond the length of the row prefetches a row that is not needed.
            there = next_row >= 0 && position < args.streams[0].width;
        }
        if (there) {
            const SelectionView& s = stream(args);
            slot = list_of(args, s, row)[entry_of(position)];
        }
    }

    // Prefetches a whole page. The lines of its rows are contiguous.
    __device__ __forceinline__ void fetch_page(const SelectionView& s) const {
        constexpr u32 kPageBytes = kKeys * Rows::kRowBytes;
        if (slot < 0 || slot >= s.slots / kKeys) {
            return;
        }
        const u8* page = s.base + slot * s.page_bytes;
#ifdef SPARROW_BULK
        if (threadIdx.x % 128 == 0) {
            ptx::prefetch_bytes(page, kPageBytes);
        }
#else
#pragma unroll
        for (u32 at = 0; at < kPageBytes; at += 128 * kLine) {
            const u32 line = at + threadIdx.x % 128 * kLine;
            if (line < kPageBytes) {
                ptx::prefetch_line(page + line);
            }
        }
#endif
    }

    __device__ __forceinline__ void fetch(const SparseAttendArgs& args) const {
        const SelectionView& s = stream(args);
        if constexpr (kEvery) {
            fetch_page(s);
            return;
        }
        if (slot < 0 || slot >= s.slots) {
            return;
        }
        const u32 part = threadIdx.x % 2;
        const u8* page = page_of(s, slot);
        if constexpr (Rows::kMixed) {
            const u8* row = page + (slot & s.page_mask) * s.scales;
            if (s.scales == Rows::Held::kSecondBytes) {
                prefetch_lines<Rows::Held::kSecondBytes, kLine>(row, part);
            } else {
                prefetch_lines<Rows::kRowBytes, kLine>(row, part);
            }
            return;
        }
        prefetch_lines<Rows::kRowBytes, kLine>(page + (slot & s.page_mask) * Rows::kRowBytes, part);
        if (Rows::kTwoStreams && part == 0) {
            ptx::prefetch_line(page + s.scales + (slot & s.page_mask) * 8ll);
        }
    }
};

}  // namespace sparrow_sparse
