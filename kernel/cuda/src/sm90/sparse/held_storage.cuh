// Shared memory of the kernel that holds queries in registers.
//
// Keys and queries pass through one ring. An entry of the ring is a block of 64 keys, or the queries of a unit: four
// quarters of two tiles each. Every quarter is filled and freed separately.
#pragma once

#include "ptx/async.cuh"
#include "sm90/sparse/storage.cuh"

namespace sparrow_sparse {

// Warpgroup 0 computes scores and softmax; warpgroups 1 and 2 compute output columns 0-255 and 256-511; warpgroup 3
// fetches.
constexpr int kHeldThreads = 512;
constexpr int kHeldLaunchRegisters = 128;

constexpr int kQuarters = 4;  // quarters per entry
constexpr int kQuarterTiles = 2;
constexpr int kQuarterBytes = kQuarterTiles * kTileBytes;
constexpr int kHeldQuarters = 3;  // quarters of the queries in registers; the last quarter is in shared memory
constexpr u32 kTurns = 3;         // entries for which factor and valid are kept
// Number of entries that have their own weighted and scored barriers. The score group may be three entries ahead of a
// value group, because it frees the quarters of queries itself, and the ring then holds three more blocks.
constexpr u32 kSteps = 4;

// Buffers in addition to the ring. With nine tiles, the side tiles hold the rotary tiles of three entries; the weights
// of a block overwrite its rotary tile once the scores are complete. With eight tiles, they hold the weights of two
// blocks.
template <int Tiles>
struct HeldShape {
    static constexpr bool kRotary = Tiles > kQuarters * kQuarterTiles;
    static constexpr u32 kRing = kRotary ? 11 : 12;  // quarters in the ring
    static constexpr u32 kSides = kRotary ? 3 : 2;   // side tiles, in addition to the ring
    static constexpr int kQueryTiles = Tiles - kHeldQuarters * kQuarterTiles;
};

// The position of use n in a ring of Size, and the parity of that use.
template <u32 Size>
struct Place {
    u32 at, parity;

    __device__ __forceinline__ explicit Place(u32 n) : at(n % Size), parity(n / Size & 1) {}
};

// Barriers. full: the fetchers have filled a quarter. empty: the value group that uses these columns has read them,
// or the score group has read the queries. side_empty: both value groups have read the weights, or the score group
// has read its part of the queries. Both count the threads of a group: a group that reads only with the tensor cores
// arrives once per warp, for all lanes; a thread that reads queries or factors itself arrives for itself. A warp
// barrier and one arrival would order those reads as well, but racecheck does not recognise that a read of one lane
// precedes the arrival of another. weighted: the weights and factors of a block are complete. scored: the tensor
// cores have read the operands of a block's last score product. Entry e of the ring uses quarters 4 * e to 4 * e + 3,
// and side tile, turn and step e of their rings, whether it holds keys or queries, so that its number determines all
// phases. Every phase is waited for. final: units with keys.
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
    float factor[kTurns][kHeads];  // [entries][heads] factor by which a block rescales the output
    // For each head of a unit: the base of the exponents, the sum, and the largest score; base and largest are in
    // base 2.
    float base[kHeads], sum[kHeads], largest[kHeads];
    u64 valid[kTurns];             // bit t: key t of the block is valid
    u64 full[Shape::kRing], empty[Shape::kRing];
    u64 side_empty[Shape::kSides];
    u64 weighted[kSteps], scored[kSteps];
    u64 final_full, final_empty;
};

// Initialises the barriers; one thread calls it before __syncthreads. A full quarter has one arrival per fetching
// thread for its copies, and one per warp for its direct writes.
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

// Arrives at a barrier with the count of a whole warp, after the reads of all its lanes.
__device__ __forceinline__ void arrive_lanes(u64& barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        ptx::barrier_arrive(ptx::shared_address(&barrier), 32);
    }
}

// A unit of work over one stream, with the division of rows into units of storage.cuh. Every group iterates over the
// units itself and keeps only the number of the unit while it runs, to save registers.
struct HeldUnit {
    i32 first, blocks;  // key blocks [first, first + blocks) of the row
    bool fresh;         // the unit needs other queries than the previous unit of this thread block

    // length is the number of keys in the row's list.
    __device__ __forceinline__ HeldUnit(const SparseAttendArgs& args, u32 u, i32 length) {
        const u32 segment = segment_of(args, u);
        const i32 all = (clipped(args.streams[0], length) + kKeys - 1) / kKeys, each = segment_blocks(args, all);
        first = static_cast<i32>(segment) * each;
        blocks = max(min(all - first, each), 0);
        fresh = segment == 0 || u == Share(args).first;
    }
};

// Returns the number of keys of the row of unit u, or 0 beyond the last unit.
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
