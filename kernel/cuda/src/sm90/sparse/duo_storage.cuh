// Shared memory of the two thread blocks that share a unit of work (duo.cuh), its barriers, and the unit.
#pragma once

#include "ptx/peer.cuh"
#include "sm90/sparse/math.cuh"

namespace sparrow_sparse {

// For each lane of the score group and its two heads: partial sums of the weights of a key block (t0, t1), and the
// factors by which the key block rescales the output (f0, f1).
struct LaneSums {
    float t0, t1, f0, f1;
};

// Shared memory of one of the two thread blocks. "Own" refers to the blocks of keys that this thread block owns. The
// weights of own blocks are stored in the ninth tile: the rotary tile, or one that rows of eight tiles do not have.
struct DuoStorage {
    static constexpr int kTiles = 9;
    u8 q[kTiles * kTileBytes];
    u8 k[kTiles * kTileBytes];             // keys of a block that this thread block owns
    u8 v[2][kHalfTiles * kTileBytes];      // this thread block's value columns of blocks that the other one owns
    u8 weights[kTileBytes];                // [64][64] of 16 bits: weights of a block that the other thread block owns
    LaneSums sums[128];                    // sums of a block that the other thread block owns
    LaneSums own_sums[128];                // sums of a block that this thread block owns
    // [heads] received from the other thread block: the base of its exponents, and its largest scores.
    float base[kHeads], largest[kHeads];
    float final[kHeads];
    u64 valid;  // bit t: key t of the own block is valid
    // Barriers for filled (full) and freed buffers. q_full: queries. k_full, left_free: halves of k. v_full, v_free:
    // buffers of v. own_full, own_free: weights and own_sums of an own block; own_free also frees the right half of k,
    // whose rotary tile holds the weights. other_full: weights and sums from the other thread block. sums_free: the
    // score group of the other thread block has read its sums, one key block later.
    u64 q_full, k_full[2], left_free, v_full[2], v_free[2];
    u64 own_full, own_free, sums_free, other_full;
    u64 base_full, largest_full, final_full;

    __device__ __forceinline__ u32 own_weights() { return ptx::shared_address(k) + 8 * kTileBytes; }
};

// The unit of work of a cluster, with the values for one of its two thread blocks.
struct DuoUnit {
    i32 row, head, segment, block, blocks;
    i32 first_blocks;       // blocks of the first stream
    i32 keys, second_keys;  // keys of the row in each stream
    i32 list;               // row of the indices
    u32 rank;

    __device__ __forceinline__ DuoUnit(const SparseAttendArgs& args) {
        const u32 u = blockIdx.x / 2;
        rank = blockIdx.x % 2;
        row = row_at(args, u);
        head = head_at(args, u);
        segment = static_cast<i32>(u % static_cast<u32>(args.segments));
        block = segment * args.segment_blocks;
        keys = second_keys = 0;
        first_blocks = blocks = 0;
    }
    // Reads the length of the row. Must be called after the previous kernel has finished. Two: rows have up to two
    // streams.
    template <bool Two>
    __device__ __forceinline__ void measure(const SparseAttendArgs& args) {
        const SelectionView& s = args.streams[0];
        keys = clipped(s, s.lens[row * s.len_stride]);
        first_blocks = (keys + kKeys - 1) / kKeys;
        i32 all = first_blocks;
        if constexpr (Two) {
            const SelectionView& more = args.streams[1];
            second_keys = more.width == 0 ? 0 : clipped(more, more.lens[row * more.len_stride]);
            all += (second_keys + kKeys - 1) / kKeys;
        }
        const i32 each = segment_blocks(args, all);
        list = list_row(args, row);
        if constexpr (kEvery) {
            block = segment * each;
        }
        blocks = max(min(all - block, each), 0);
    }
    template <bool Two>
    __device__ __forceinline__ BlockPlace place(i32 n) const {
        const i32 b = block + n;
        const bool second = Two && b >= first_blocks;
        return {second ? 1 : 0, (second ? b - first_blocks : b) * kKeys, second ? second_keys : keys};
    }
    __device__ __forceinline__ bool own(i32 n) const { return (static_cast<u32>(n) & 1) == rank; }
    __device__ __forceinline__ i32 column() const { return static_cast<i32>(rank) * kHalfColumns; }
};

// Fetching threads, threads of a block, and registers per thread of each warpgroup. The registers of all four
// warpgroups may not exceed the registers at launch.
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
    init(shared.own_free, 2 * kWarps);  // arrivals of the warps of the value groups of both thread blocks
    init(shared.sums_free, kWarps);
    init(shared.other_full, 1);
    init(shared.base_full, 1);
    init(shared.largest_full, 1);
    init(shared.final_full, kGroup);
    // Expected bytes of the first transfers from the other thread block.
    ptx::barrier_expect(ptx::shared_address(&shared.other_full), kWeightBytes);
    ptx::barrier_expect(ptx::shared_address(&shared.base_full), kBaseBytes);
    ptx::barrier_expect(ptx::shared_address(&shared.largest_full), kBaseBytes);
    ptx::barrier_init_fence();
}

// Arrives once per warp at `barrier` of the other thread block. The arrival does not wait for reads whose values have
// not been used. `after` is zero, computed from the values of such reads.
__device__ __forceinline__ void arrive_at_other(u64& barrier, u32 rank, u32 after = 0) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        ptx::peer_arrive(ptx::peer_address(ptx::shared_address(&barrier), rank ^ 1) + after);
    }
}

}  // namespace sparrow_sparse
