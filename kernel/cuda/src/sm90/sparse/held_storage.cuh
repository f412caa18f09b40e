// Shared memory of the kernel that holds queries in registers.
//
// Keys and queries pass through one ring. An entry of the ring is a block of 64 keys, or the queries of a unit: four
// quarters of two tiles each. Every quarter is filled and freed for itself.
#pragma once

#include "ptx/async.cuh"
#include "sm90/sparse/storage.cuh"

namespace sparrow_sparse {

// Warpgroups: 0 scores and softmax; 1 and 2 output columns 0-255 and 256-511; 3 fetches.
constexpr int kHeldThreads = 512;
constexpr int kHeldLaunchRegisters = 128;

constexpr int kQuarters = 4;  // of an entry
constexpr int kQuarterTiles = 2;
constexpr int kQuarterBytes = kQuarterTiles * kTileBytes;
constexpr int kHeldQuarters = 3;  // of the queries in registers; the rest is in shared memory
constexpr u32 kTurns = 3;         // entries of which words beside the tiles are kept
// Entries whose steps are told apart. The score group may be three entries ahead of a value group: it frees queries
// itself, so that the ring holds three blocks more when a value group comes to them.
constexpr u32 kSteps = 4;

// What fits depends on the tiles of a row. Nine: the rotary tiles of three entries, each of which takes the weights of
// its block once the scores are there. Eight: weights of two blocks.
template <int Tiles>
struct HeldShape {
    static constexpr bool kRotary = Tiles > kQuarters * kQuarterTiles;
    static constexpr u32 kRing = kRotary ? 11 : 12;  // quarters
    static constexpr u32 kSides = kRotary ? 3 : 2;   // tiles beside the ring
    static constexpr int kQueryTiles = Tiles - kHeldQuarters * kQuarterTiles;
};

// The place of use n of a ring of Size, and the parity of that use.
template <u32 Size>
struct Place {
    u32 at, parity;

    __device__ __forceinline__ explicit Place(u32 n) : at(n % Size), parity(n / Size & 1) {}
};

// Who waits for whom. full: the fetchers have filled a quarter. empty: the value group that has the columns is done
// with them, or the score group with queries. side_empty: both value groups have read the weights, or the score group
// has what it needs of queries. Both count the threads of a group: who reads by the tensor cores alone arrives once
// for a warp, who reads queries or factors by itself for itself. A warp's barrier and one arrival order those reads as
// well, but racecheck does not see that a read of one lane is before the arrival of another. weighted: weights and
// factors of a block are there. scored: the tensor cores have taken the last products of a block's scores. Entry e of
// the ring has quarters 4 * e and following, side tile, turn and step e of their rings, whether it is keys or queries,
// so that its number says all phases. Every phase is waited for. final: units with keys.
template <int Tiles>
struct HeldStorage {
    using Shape = HeldShape<Tiles>;
    using Quarter = Place<Shape::kRing>;
    using Side = Place<Shape::kSides>;
    using Turn = Place<kTurns>;
    using Step = Place<kSteps>;

    u8 ring[Shape::kRing][kQuarterBytes];
    u8 side[Shape::kSides][kTileBytes];
    u8 q[Shape::kQueryTiles][kTileBytes];
    float factor[kTurns][kHeads];  // what a block multiplies the output so far by
    // Of a unit, for each head: what exponents are relative to, the sum, and the largest score, both in base 2.
    float base[kHeads], sum[kHeads], largest[kHeads];
    u64 valid[kTurns];             // bit t: key t of the block counts
    u64 full[Shape::kRing], empty[Shape::kRing];
    u64 side_empty[Shape::kSides];
    u64 weighted[kSteps], scored[kSteps];
    u64 final_full, final_empty;
};

// Called by one thread before the block's barrier. A full quarter has an arrival of every fetching thread for its
// copies, and one of every warp for what it has written itself.
template <int Tiles>
__device__ __forceinline__ void init_barriers(HeldStorage<Tiles>& shared) {
    constexpr u32 kWarps = 4, kGroup = 128;
    for (u32 b = 0; b < HeldShape<Tiles>::kRing; ++b) {
        ptx::barrier_init(ptx::shared_address(&shared.full[b]), kFetchers + kWarps);
        ptx::barrier_init(ptx::shared_address(&shared.empty[b]), kGroup);
    }
    for (u32 b = 0; b < HeldShape<Tiles>::kSides; ++b) {
        ptx::barrier_init(ptx::shared_address(&shared.side_empty[b]), 2 * kGroup);
    }
    for (u32 b = 0; b < kSteps; ++b) {
        ptx::barrier_init(ptx::shared_address(&shared.weighted[b]), kGroup);
        ptx::barrier_init(ptx::shared_address(&shared.scored[b]), kWarps);
    }
    ptx::barrier_init(ptx::shared_address(&shared.final_full), kGroup);
    ptx::barrier_init(ptx::shared_address(&shared.final_empty), 2 * kGroup);
    ptx::barrier_init_fence();
}

// The arrivals of all lanes of a warp at once, after what all of them have done.
__device__ __forceinline__ void arrive_lanes(u64& barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        ptx::barrier_arrive(ptx::shared_address(&barrier), 32);
    }
}

// A unit of work over one stream, as storage.cuh cuts rows into units. Every group walks through them for itself and
// keeps only the unit's number while it runs: registers are scarce.
struct HeldUnit {
    i32 first, blocks;  // blocks of the row: [first, first + blocks)
    bool fresh;         // the queries are not those of the thread block's unit before

    // length: of the row, as the list says.
    __device__ __forceinline__ HeldUnit(const SparseAttendArgs& args, u32 u, i32 length) {
        const u32 segment = segment_of(args, u);
        const i32 all = (clipped(args.streams[0], length) + kKeys - 1) / kKeys, each = segment_blocks(args, all);
        first = static_cast<i32>(segment) * each;
        blocks = max(min(all - first, each), 0);
        fresh = segment == 0 || u == Share(args).first;
    }
};

// The length of the row of unit u, 0 beyond the last one.
__device__ __forceinline__ i32 held_length(const SparseAttendArgs& args, u32 u) {
    const SelectionView& s = args.streams[0];
    return u < Share(args).end ? s.lens[row_of(args, u) * s.len_stride] : 0;
}

// Calls each(u, unit) for the units of this thread block.
template <class Each>
__device__ __forceinline__ void each_held_unit(const SparseAttendArgs& args, const Each& each) {
    u32 u = Share(args).first;
    i32 length = held_length(args, u);
#pragma unroll 1
    for (; u < Share(args).end; u += Share(args).step) {
        const HeldUnit unit(args, u, length);
        length = held_length(args, u + Share(args).step);
        each(u, unit);
    }
}

}  // namespace sparrow_sparse
