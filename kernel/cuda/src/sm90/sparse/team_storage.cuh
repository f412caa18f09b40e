// Shared memory of the thread blocks that share a unit of work (team.cuh), its barriers, and the unit.
#pragma once

#include "ptx/peer.cuh"
#include "sm90/sparse/duo_storage.cuh"

namespace sparrow_sparse {

constexpr int kWeightSlots = 4;  // blocks whose weights are on their way or in use

// Shared memory of one of Team thread blocks. Own: of the blocks of keys whose turn is its own.
template <int TeamBlocks>
struct TeamStorage {
    static constexpr int Team = TeamBlocks;
    static constexpr int kTiles = 9;
    static constexpr int kSliceTiles = kValues / kTileColumns / Team;  // own columns
    static constexpr int kSlices = 4 / kSliceTiles;                    // blocks of which they are kept
    static_assert(Team == 4 || Team == 8, "own blocks always have the same slot of weights");

    u8 q[kTiles * kTileBytes];
    u8 k[kTiles * kTileBytes];                     // an own block
    u8 v[kSlices][kSliceTiles * kTileBytes];       // own columns of any block
    u8 weights[kWeightSlots][kTileBytes];          // of any block
    LaneSums sums[kWeightSlots][128];              // of the same
    // Largest scores of the blocks of a round, two rounds in turn: [.., member, a lane's two heads side by side].
    alignas(16) float largest[2][Team][kHeads];
    float base[kHeads], highest[kHeads];           // of the whole row, at its end
    u64 valid;                                     // of an own block
    // Filled: queries; both halves of an own block, and when it is free; own columns; weights from others and own
    // ones; slot_free: all value groups are done with the block that had the slot of the next own weights.
    u64 q_full, k_full[2], k_free, v_full[kSlices], v_free[kSlices];
    u64 others_full[kWeightSlots], own_full, slot_free;
    u64 largest_full[2], final_full;
};

template <int Team>
constexpr u32 team_shared_bytes() { return sizeof(TeamStorage<Team>) + 1024; }

template <int Team>
__device__ __forceinline__ TeamStorage<Team>& team_storage() {
    static_assert(team_shared_bytes<Team>() <= 232448, "more shared memory than a Hopper block can have");
    extern __shared__ u8 dynamic_shared[];
    const u32 misaligned = ptx::shared_address(dynamic_shared) % 1024;
    return *reinterpret_cast<TeamStorage<Team>*>(dynamic_shared + (misaligned ? 1024 - misaligned : 0));
}

// The unit of a cluster, and which of its members this thread block is. Member r has every Team-th block of keys from
// r on, and columns [512 / Team * r, 512 / Team * (r + 1)).
template <int Team>
struct TeamUnit {
    i32 row, head, blocks, keys;
    u32 rank;

    __device__ __forceinline__ TeamUnit(const SparseAttendArgs& args) {
        const u32 u = blockIdx.x / Team;
        rank = blockIdx.x % Team;
        row = row_of(args, u);
        head = head_of(args, u);
        keys = 0;
        blocks = 0;
    }
    // Called when the launch before has ended.
    __device__ __forceinline__ void measure(const SparseAttendArgs& args) {
        const SelectionView& s = args.streams[0];
        keys = clipped(s, s.lens[row * s.len_stride]);
        blocks = (keys + kKeys - 1) / kKeys;
    }
    __device__ __forceinline__ i32 rounds() const { return (blocks + Team - 1) / Team; }
    __device__ __forceinline__ i32 own(i32 round) const { return round * Team + static_cast<i32>(rank); }
    __device__ __forceinline__ i32 column() const { return static_cast<i32>(rank) * (kValues / Team); }
};

// Threads that fetch, threads of a block, and registers of a thread of each warpgroup, which together are those of
// the launch at most.
constexpr int kTeamFetchers = 256, kTeamThreads = 256 + kTeamFetchers;
constexpr int kTeamMathRegisters = 104, kTeamFetchRegisters = 152;
static_assert(2 * kTeamMathRegisters + 2 * kTeamFetchRegisters <= 4 * 128, "more registers than the launch got");

// Called by one thread. mask_writers: arrivals on the left half of an own block beside those of the fetchers.
template <int Team>
__device__ __forceinline__ void team_init(TeamStorage<Team>& shared, u32 mask_writers) {
    constexpr u32 kWarps = 4, kGroup = 128, kFetchers = kTeamFetchers;
    const auto init = [](u64& b, u32 n) { ptx::barrier_init(ptx::shared_address(&b), n); };
    init(shared.q_full, kFetchers);
    init(shared.k_full[0], kFetchers + mask_writers);
    init(shared.k_full[1], kFetchers);
    init(shared.k_free, kWarps);
    for (int i = 0; i < TeamStorage<Team>::kSlices; ++i) {
        init(shared.v_full[i], kFetchers);
        init(shared.v_free[i], kWarps);
    }
    for (int i = 0; i < kWeightSlots; ++i) {
        init(shared.others_full[i], 1);
        ptx::barrier_expect(ptx::shared_address(&shared.others_full[i]), kWeightBytes);  // what comes first
    }
    init(shared.own_full, kGroup);
    init(shared.slot_free, Team * kWarps);
    init(shared.largest_full[0], 1);
    init(shared.largest_full[1], 1);
    init(shared.final_full, kGroup);
    ptx::barrier_init_fence();
}

}  // namespace sparrow_sparse
