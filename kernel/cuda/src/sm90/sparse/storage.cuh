// Shared memory of a block of sparse attention, and how a unit of work is found.
#pragma once

#include "ptx/async.cuh"
#include "ptx/barrier.cuh"
#include "ptx/warp.cuh"
#include "sm90/sparse/config.h"

namespace sparrow_sparse {

// Weights of a block, 16 bits [64 heads][64 keys]. Rows of nine tiles lend their rotary tile, which nobody needs once the scores are there.
template <int Tiles>
struct WeightTiles {
    u8 tile[2][kTileBytes];
};
template <>
struct WeightTiles<9> {};

// Who waits for whom: fetchers fill q and k, halves of k apart (tiles 0-3, the rest); the score group frees q after a unit's last scores and the
// left half of k after its product; the value group frees the right half, with the weights, and final. Phases count the blocks of a buffer
// (k, scores, weights), units with keys (q) and every second of them (final).
template <int Tiles>
struct Storage {
    u8 q[Tiles * kTileBytes];
    u8 k[2][Tiles * kTileBytes];
    WeightTiles<Tiles> weights;
    float factor[2][kHeads];  // what a block multiplies the output so far by
    float final[2][kHeads];   // what a unit multiplies its output by in the end
    u64 valid[2];             // bit t: key t of the block counts
    u64 q_full, q_empty;
    u64 k_full[2][2], k_empty[2][2];
    u64 scores_done[2];
    u64 weights_full[2];
    u64 final_full[2], final_empty[2];

    __device__ __forceinline__ u32 weights_at(u32 b) {
        if constexpr (Tiles == 9) {
            return ptx::shared_address(k[b]) + 8 * kTileBytes;
        } else {
            return ptx::shared_address(weights.tile[b]);
        }
    }
};

template <int Tiles>
constexpr u32 shared_bytes() {
    return sizeof(Storage<Tiles>) + 1024;  // room to align it to a swizzle atom
}

template <int Tiles>
__device__ __forceinline__ Storage<Tiles>& storage() {
    static_assert(sizeof(Storage<Tiles>) + 1024 <= 232448, "more shared memory than a Hopper block can have");
    extern __shared__ u8 dynamic_shared[];
    u32 misaligned = ptx::shared_address(dynamic_shared) % 1024;
    return *reinterpret_cast<Storage<Tiles>*>(dynamic_shared + (misaligned ? 1024 - misaligned : 0));
}

// Called by one thread before the block's barrier. k_full has an arrival for each fetching thread, and on the left
// half those of threads that write valid bits apart.
template <int Tiles>
__device__ __forceinline__ void init_barriers(Storage<Tiles>& shared, u32 mask_writers) {
    constexpr u32 kWarps = 4, kGroup = 128;
    ptx::barrier_init(ptx::shared_address(&shared.q_full), kFetchers);
    ptx::barrier_init(ptx::shared_address(&shared.q_empty), kWarps);
    for (int b = 0; b < 2; ++b) {
        ptx::barrier_init(ptx::shared_address(&shared.k_full[b][0]), kFetchers + mask_writers);
        ptx::barrier_init(ptx::shared_address(&shared.k_full[b][1]), kFetchers);
        ptx::barrier_init(ptx::shared_address(&shared.k_empty[b][0]), kWarps);
        ptx::barrier_init(ptx::shared_address(&shared.k_empty[b][1]), kWarps);
        ptx::barrier_init(ptx::shared_address(&shared.scores_done[b]), kWarps);
        ptx::barrier_init(ptx::shared_address(&shared.weights_full[b]), kGroup);
        ptx::barrier_init(ptx::shared_address(&shared.final_full[b]), kGroup);
        ptx::barrier_init(ptx::shared_address(&shared.final_empty[b]), kWarps);
    }
    ptx::barrier_init_fence();
}

// One unit: heads [head, head + 64) of a row over the row's blocks [block, block + blocks).
struct Unit {
    i32 row, head, segment;
    i32 block, blocks;
    i32 first_blocks;  // blocks of the first stream
    i32 first_len, second_len;
};

__device__ __forceinline__ i32 clipped_length(const SelectionView& s, i32 row) {
    return s.width == 0 ? 0 : max(min(s.lens[row * s.len_stride], s.width), 0);
}

__device__ __forceinline__ u32 head_groups(const SparseAttendArgs& args) {
    return (static_cast<u32>(args.heads) + kHeads - 1) / kHeads;
}

// Units of a launch: fewer than 2^31.
__device__ __forceinline__ u32 unit_count(const SparseAttendArgs& args) {
    return static_cast<u32>(args.rows) * static_cast<u32>(args.segments) * head_groups(args);
}

// Unit u. Head groups of a row are neighbours, so that they run side by side and share rows in L2; then its segments, then the next row.
__device__ __forceinline__ Unit unit_at(const SparseAttendArgs& args, u32 u) {
    const u32 groups = head_groups(args), segments = args.segments;
    const u32 rest = u / groups, row = rest / segments;
    Unit r;
    r.head = static_cast<i32>(u - rest * groups) * kHeads;
    r.segment = static_cast<i32>(rest - row * segments);
    r.row = static_cast<i32>(row);
    r.first_len = clipped_length(args.streams[0], r.row);
    r.second_len = clipped_length(args.streams[1], r.row);
    r.first_blocks = (r.first_len + kKeys - 1) / kKeys;
    const i32 all = r.first_blocks + (r.second_len + kKeys - 1) / kKeys;
    r.block = r.segment * args.segment_blocks;
    r.blocks = max(min(all - r.block, args.segment_blocks), 0);
    return r;
}

// Asks for the lengths of the row of unit u ahead of their use.
__device__ __forceinline__ void prefetch_unit(const SparseAttendArgs& args, u32 u) {
    if (u < unit_count(args)) {
        const i64 row = u / head_groups(args) / static_cast<u32>(args.segments);
        asm volatile("prefetch.global.L1 [%0];" ::"l"(args.streams[0].lens + row * args.streams[0].len_stride));
        if (args.streams[1].width != 0) {
            asm volatile("prefetch.global.L1 [%0];" ::"l"(args.streams[1].lens + row * args.streams[1].len_stride));
        }
    }
}

// A walk over all blocks of a thread block's units, in order.
struct Walk {
    const SparseAttendArgs& args;
    u32 next, count;
    Unit unit;
    i32 block;
    bool more;  // unit and block say where the walk is

    __device__ __forceinline__ Walk(const SparseAttendArgs& a) : args(a), next(blockIdx.x), count(unit_count(a)), block(0), more(true) {
        unit.blocks = 0;
        step();
    }
    __device__ __forceinline__ void step() {
        if (++block < unit.blocks) {
            return;
        }
        block = 0;
        do {
            more = next < count;
            if (!more) {
                return;
            }
            unit = unit_at(args, next);
            next += gridDim.x;
        } while (unit.blocks == 0);
    }
};

// The selection a block belongs to, and the position of its first key there.
struct BlockPlace {
    i32 stream;
    i32 position, length;
};

__device__ __forceinline__ BlockPlace place_of(const Unit& u, i32 block) {
    const i32 b = u.block + block;
    const bool second = b >= u.first_blocks;
    return {second ? 1 : 0, (second ? b - u.first_blocks : b) * kKeys, second ? u.second_len : u.first_len};
}

// The byte of 16-byte chunk c of row r inside a tile.
__device__ __forceinline__ u32 tile_byte(u32 r, u32 c) {
    return r * 128 + ((c ^ (r & 7)) << 4);
}

}  // namespace sparrow_sparse
