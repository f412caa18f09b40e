// Shared memory of a block of sparse attention, and how a unit of work is found.
#pragma once

#include "ptx/async.cuh"
#include "ptx/barrier.cuh"
#include "ptx/warp.cuh"
#include "sm90/sparse/config.h"

namespace sparrow_sparse {

// Weights of a block, 16 bits [64 heads][64 keys]. Rows of nine tiles lend their rotary tile, which nobody needs once
// the scores are there.
template <int Tiles>
struct WeightTiles {
    u8 tile[2][kTileBytes];
};
template <>
struct WeightTiles<9> {};

// Who waits for whom: fetchers fill q and k, parts of k apart; the score group frees q after the last scores that
// need it and the first part of k after its product; the value group frees the other parts, with the weights, and
// final. Phases count the blocks of a buffer (k, scores, weights), queries (q) and every second unit with keys
// (final).
template <int Tiles>
struct Storage {
    u8 q[Tiles * kTileBytes];
    u8 k[2][Tiles * kTileBytes];
    WeightTiles<Tiles> weights;
    float factor[2][kHeads];  // what a block multiplies the output so far by
    float final[2][kHeads];   // what a unit multiplies its output by in the end
    u64 valid[2];             // bit t: key t of the block counts
    u64 q_full, q_empty;
    u64 k_full[2][kParts], k_empty[2][kParts];
    // The first three quarters of a block's keys, of the value group's columns: free before k_empty says that all are
    // (Rows::kQuarters).
    u64 quarter_empty[2][3];
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

// Dynamic shared memory to launch with.
template <class Shared>
constexpr u32 shared_bytes() {
    return sizeof(Shared) + 1024;  // room to align it to a swizzle atom
}

template <class Shared>
__device__ __forceinline__ Shared& shared_memory() {
    static_assert(shared_bytes<Shared>() <= 232448, "more shared memory than a Hopper block can have");
    extern __shared__ u8 dynamic_shared[];
    const u32 misaligned = ptx::shared_address(dynamic_shared) % 1024;
    return *reinterpret_cast<Shared*>(dynamic_shared + (misaligned ? 1024 - misaligned : 0));
}

// Called by one thread before the block's barrier. k_full has an arrival for each fetching thread.
template <int Tiles>
__device__ __forceinline__ void init_barriers(Storage<Tiles>& shared) {
    constexpr u32 kWarps = 4, kGroup = 128;
    ptx::barrier_init(ptx::shared_address(&shared.q_full), kFetchers);
    ptx::barrier_init(ptx::shared_address(&shared.q_empty), kWarps);
    for (int b = 0; b < 2; ++b) {
        for (int part = 0; part < kParts; ++part) {
            ptx::barrier_init(ptx::shared_address(&shared.k_full[b][part]), kFetchers);
            ptx::barrier_init(ptx::shared_address(&shared.k_empty[b][part]), part + 1 < kParts ? kWarps : kGroup);
        }
        for (int i = 0; i < 3; ++i) {
            ptx::barrier_init(ptx::shared_address(&shared.quarter_empty[b][i]), kWarps);
        }
        ptx::barrier_init(ptx::shared_address(&shared.scores_done[b]), kWarps);
        ptx::barrier_init(ptx::shared_address(&shared.weights_full[b]), kGroup);
        ptx::barrier_init(ptx::shared_address(&shared.final_full[b]), kGroup);
        ptx::barrier_init(ptx::shared_address(&shared.final_empty[b]), kGroup);
    }
    ptx::barrier_init_fence();
}

// One unit: heads [head, head + 64) of a row over the row's blocks [block, block + blocks).
struct Unit {
    i32 row, head, segment;
    i32 block, blocks;
    i32 first_blocks;  // blocks of the first stream
    i32 first_len, second_len;
    bool fresh;  // the queries are not those of the block's unit before
    bool last;   // nor are those of the next
};

__device__ __forceinline__ u32 head_groups(const SparseAttendArgs& args) {
    return (static_cast<u32>(args.heads) + kHeads - 1) / kHeads;
}

// Units of a launch: fewer than 2^31.
__device__ __forceinline__ u32 unit_count(const SparseAttendArgs& args) {
    return static_cast<u32>(args.rows) * static_cast<u32>(args.segments) * head_groups(args);
}

// The units of this thread block. In one segment a row, blocks take turns, so that the head groups of a row run side
// by side and share its keys in L2. With several, a block has consecutive units: segments of the same heads, which
// need their queries only once.
struct Share {
    u32 first, end, step;

    __device__ __forceinline__ Share(const SparseAttendArgs& args) {
        const u32 count = unit_count(args), each = count / gridDim.x, more = count % gridDim.x;
        const bool turns = args.segments == 1;
        first = turns ? blockIdx.x : blockIdx.x * each + min(blockIdx.x, more);
        end = turns ? count : first + each + (blockIdx.x < more ? 1 : 0);
        step = turns ? gridDim.x : 1;
    }
};

__device__ __forceinline__ i32 row_of(const SparseAttendArgs& args, u32 u) {
    return static_cast<i32>(u / static_cast<u32>(args.segments) / head_groups(args));
}

// The first of the heads of a unit.
__device__ __forceinline__ i32 head_of(const SparseAttendArgs& args, u32 u) {
    return static_cast<i32>(u / static_cast<u32>(args.segments) % head_groups(args)) * kHeads;
}

// Keys of the row of a unit, asked for ahead of their use.
struct Lengths {
    i32 first = 0, second = 0;

    __device__ __forceinline__ Lengths(const SparseAttendArgs& args, const Share& share, u32 u) {
        if (u < share.end) {
            const i32 row = row_of(args, u);
            first = args.streams[0].lens[row * args.streams[0].len_stride];
            second = args.streams[1].width == 0 ? 0 : args.streams[1].lens[row * args.streams[1].len_stride];
        }
    }
};

__device__ __forceinline__ i32 clipped(const SelectionView& s, i32 length) { return max(min(length, s.width), 0); }

// Blocks of all keys of a row.
__device__ __forceinline__ i32 row_blocks(const SparseAttendArgs& args, i32 row) {
    i32 blocks = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const SelectionView& s = args.streams[i];
        if (s.width != 0) {
            blocks += (clipped(s, s.lens[row * s.len_stride]) + kKeys - 1) / kKeys;
        }
    }
    return blocks;
}

// Unit u: segments of a head group first, then the row's next head group, then the next row.
__device__ __forceinline__ Unit unit_of(const SparseAttendArgs& args, const Share& share, u32 u,
    const Lengths& lengths) {
    const u32 rest = u / static_cast<u32>(args.segments);
    Unit r;
    r.row = row_of(args, u);
    r.segment = static_cast<i32>(u - rest * args.segments);
    r.head = static_cast<i32>(rest - r.row * head_groups(args)) * kHeads;
    r.first_len = clipped(args.streams[0], lengths.first);
    r.second_len = clipped(args.streams[1], lengths.second);
    r.first_blocks = (r.first_len + kKeys - 1) / kKeys;
    const i32 all = r.first_blocks + (r.second_len + kKeys - 1) / kKeys;
    r.block = r.segment * args.segment_blocks;
    r.blocks = max(min(all - r.block, args.segment_blocks), 0);
    r.fresh = r.segment == 0 || u == share.first;
    r.last = r.block + r.blocks >= all || r.segment + 1 == args.segments || u + 1 == share.end;
    return r;
}

__device__ __forceinline__ Unit unit_at(const SparseAttendArgs& args, const Share& share, u32 u) {
    return unit_of(args, share, u, Lengths(args, share, u));
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

__device__ __forceinline__ const u8* page_of(const SelectionView& s, i32 slot) {
    return s.base + static_cast<i64>(static_cast<u32>(slot) >> s.page_shift) * s.page_bytes;
}

// A word of shared memory that other threads write.
template <class Word>
__device__ __forceinline__ Word read(const Word& word) {
    return *const_cast<const volatile Word*>(&word);
}

// The byte of 16-byte chunk c of row r inside a tile.
__device__ __forceinline__ u32 tile_byte(u32 r, u32 c) {
    return r * 128 + ((c ^ (r & 7)) << 4);
}

}  // namespace sparrow_sparse
