// Shared memory of the two thread blocks that share a unit of work (duo.cuh), its barriers, and the unit.
#pragma once

#include "ptx/peer.cuh"
#include "sm90/sparse/math.cuh"

namespace sparrow_sparse {

// For each lane of the score group: its partial sums of a block, and the factors by which the block rescales the
// output.
struct LaneSums {
    float t0, t1, f0, f1;
};

// Shared memory of one of the two thread blocks. "Own" refers to the blocks of keys that this thread block owns. The
// weights of own blocks are stored in the rotary tile.
struct DuoStorage {
    static constexpr int kTiles = 9;
    u8 q[kTiles * kTileBytes];
    u8 k[kTiles * kTileBytes];             // an own block
    u8 v[2][kHalfTiles * kTileBytes];      // own columns of the other's blocks
    u8 weights[kTileBytes];                // of one of the other's blocks
    LaneSums sums[128];                    // of the same
    LaneSums own_sums[128];                // of an own block
    // Received from the other thread block: the base of its block's exponents, and its largest scores.
    float base[kHeads], largest[kHeads];
    float final[kHeads];
    u64 valid;  // of an own block
    // Barriers for filled and free buffers: queries; both halves of an own block; own columns; weights and sums, own
    // and of the other. own_free also frees the right half, where the own weights are. sums_free means that the
    // other's score group has read its sums, which it does one block later.
    u64 q_full, k_full[2], left_free, v_full[2], v_free[2];
    u64 own_full, own_free, sums_free, other_full;
    u64 base_full, largest_full, final_full;

    __device__ __forceinline__ u32 own_weights() { return ptx::shared_address(k) + 8 * kTileBytes; }
};

// The unit of a cluster, and the rank of this thread block.
struct DuoUnit {
    i32 row, head, segment, block, blocks, keys;
    i32 list;  // of the row, among the lists
    u32 rank;

    __device__ __forceinline__ DuoUnit(const SparseAttendArgs& args) {
        const u32 u = blockIdx.x / 2;
        rank = blockIdx.x % 2;
        row = row_at(args, u);
        head = head_at(args, u);
        segment = static_cast<i32>(u % static_cast<u32>(args.segments));
        block = segment * args.segment_blocks;
        keys = 0;
        blocks = 0;
    }
    // Must be called after the previous kernel has finished.
    __device__ __forceinline__ void measure(const SparseAttendArgs& args) {
        const SelectionView& s = args.streams[0];
        keys = clipped(s, s.lens[row * s.len_stride]);
        const i32 all = (keys + kKeys - 1) / kKeys, each = segment_blocks(args, all);
        list = list_row(args, row);
        if constexpr (kEvery) {
            block = segment * each;
        }
        blocks = max(min(all - block, each), 0);
    }
    __device__ __forceinline__ bool own(i32 n) const { return (static_cast<u32>(n) & 1) == rank; }
    __device__ __forceinline__ i32 column() const { return static_cast<i32>(rank) * kHalfColumns; }
};

// The number of fetching threads, of all threads of a block, and the registers per thread of each warpgroup. Their
// sum may not exceed the registers at launch.
constexpr int kDuoFetchers = 256, kDuoThreads = 256 + kDuoFetchers;
constexpr int kDuoScoreRegisters = 96, kDuoValueRegisters = 168, kDuoFetchRegisters = 120;
static_assert(kDuoScoreRegisters + kDuoValueRegisters + 2 * kDuoFetchRegisters <= 4 * 128,
    "more registers than the launch got");

constexpr u32 kBaseBytes = kHeads * sizeof(float);
constexpr u32 kWeightBytes = kTileBytes + 128 * sizeof(LaneSums);

__device__ __forceinline__ void duo_init(DuoStorage& shared) {
    constexpr u32 kWarps = 4, kGroup = 128, kFetchers = kDuoFetchers;
    const auto init = [](u64& b, u32 n) { ptx::barrier_init(ptx::shared_address(&b), n); };
    init(shared.q_full, kFetchers);
    init(shared.left_free, kWarps);
    for (int i = 0; i < 2; ++i) {
        init(shared.k_full[i], kFetchers);
        init(shared.v_full[i], kFetchers);
        init(shared.v_free[i], kWarps);
    }
    init(shared.own_full, kGroup);
    init(shared.own_free, 2 * kWarps);  // both value groups
    init(shared.sums_free, kWarps);
    init(shared.other_full, 1);
    init(shared.base_full, 1);
    init(shared.largest_full, 1);
    init(shared.final_full, kGroup);
    // The bytes that the other thread block sends first.
    ptx::barrier_expect(ptx::shared_address(&shared.other_full), kWeightBytes);
    ptx::barrier_expect(ptx::shared_address(&shared.base_full), kBaseBytes);
    ptx::barrier_expect(ptx::shared_address(&shared.largest_full), kBaseBytes);
    ptx::barrier_init_fence();
}

// One arrival per warp at the same barrier of the other thread block, after the reads of all its lanes.
__device__ __forceinline__ void arrive_at_other(u64& barrier, u32 rank) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        ptx::peer_arrive(ptx::peer_address(ptx::shared_address(&barrier), rank ^ 1));
    }
}

}  // namespace sparrow_sparse
