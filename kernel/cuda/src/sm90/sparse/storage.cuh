// Shared memory of a block of sparse attention, and how a unit of work is found.
#pragma once

#include "ptx/async.cuh"
#include "ptx/barrier.cuh"
#include "ptx/warp.cuh"
#include "sm90/sparse/config.h"

namespace sparrow_sparse {

// Weights of a block, bf16 [64 heads][64 keys]. Rows of nine tiles lend their rotary tile, which nobody needs once the scores are there.
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

// Called by one thread before the block's barrier. k_full has one arrival per fetching thread; half 0 has one more for the valid bits.
template <int Tiles>
__device__ __forceinline__ void init_barriers(Storage<Tiles>& shared, u32 fetchers, u32 mask_writers) {
    constexpr u32 kWarps = 4, kThreads = 128;
    ptx::barrier_init(ptx::shared_address(&shared.q_full), fetchers);
    ptx::barrier_init(ptx::shared_address(&shared.q_empty), kWarps);
    for (int b = 0; b < 2; ++b) {
        ptx::barrier_init(ptx::shared_address(&shared.k_full[b][0]), fetchers + mask_writers);
        ptx::barrier_init(ptx::shared_address(&shared.k_full[b][1]), fetchers);
        ptx::barrier_init(ptx::shared_address(&shared.k_empty[b][0]), kWarps);
        ptx::barrier_init(ptx::shared_address(&shared.k_empty[b][1]), kWarps);
        ptx::barrier_init(ptx::shared_address(&shared.scores_done[b]), kWarps);
        ptx::barrier_init(ptx::shared_address(&shared.weights_full[b]), kThreads);
        ptx::barrier_init(ptx::shared_address(&shared.final_full[b]), kThreads);
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

// Unit u. Head groups of a row are neighbours, so that they run side by side and share rows in L2; then its segments, then the next row.
__device__ __forceinline__ Unit unit_at(const SparseAttendArgs& args, i64 u) {
    const i32 groups = (args.heads + kHeads - 1) / kHeads;
    Unit r;
    r.head = static_cast<i32>(u % groups) * kHeads;
    const i64 rest = u / groups;
    r.segment = static_cast<i32>(rest % args.segments);
    r.row = static_cast<i32>(rest / args.segments);
    r.first_len = clipped_length(args.streams[0], r.row);
    r.second_len = clipped_length(args.streams[1], r.row);
    r.first_blocks = (r.first_len + kKeys - 1) / kKeys;
    const i32 all = r.first_blocks + (r.second_len + kKeys - 1) / kKeys;
    r.block = r.segment * args.segment_blocks;
    r.blocks = max(min(all - r.block, args.segment_blocks), 0);
    return r;
}

__device__ __forceinline__ i64 unit_count(const SparseAttendArgs& args) {
    return static_cast<i64>(args.rows) * args.segments * ((args.heads + kHeads - 1) / kHeads);
}

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
