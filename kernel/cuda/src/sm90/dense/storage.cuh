// Shared memory of a block of dense attention: operands, records of units, and barriers.
#pragma once

#include "ptx/async.cuh"
#include "ptx/barrier.cuh"
#include "ptx/warp.cuh"
#include "sm90/dense/config.h"

namespace sparrow_dense {

// A unit of work. The warp that finds units writes the record, and the other warps read it.
struct Record {
    i32 row, rows;  // query rows [row, row + rows), at most 128; valid if tiles >= 0
    i32 head;
    i32 key;       // first key
    i32 tiles;     // tiles of keys; 0: no row has a key; negative: there is no further unit
    i32 most[2];   // maximum number of keys of a row of each math warpgroup
    i32 whole[2];  // leading tiles of which every row of each math warpgroup attends to all keys
    i32 lens[kUnitRows];
};

// Copies fill q (one half per math warpgroup), k and v. Each math warpgroup frees its half of q after its last scores,
// k after the scores of a tile, and v after the product with the tile. Phases count units with keys (q), tiles (k, v)
// and units (records).
template <class S>
struct Storage {
    u8 q[2][S::Query * S::QueryTileBytes];
    u8 k[kStages][S::Query * S::KeyTileBytes];  // the rotated columns are the last tile
    u8 v[kStages][S::Value * S::KeyTileBytes];
    Record records[kRecords];
    u64 q_full[2], q_empty[2];
    u64 k_full[kStages], k_empty[kStages];
    u64 v_full[kStages], v_empty[kStages];
    u64 record_full[kRecords], record_empty[kRecords];
};

template <class S>
constexpr u32 shared_bytes() {
    return sizeof(Storage<S>) + 1024;  // 1024 bytes of padding, to align Storage to a swizzle atom
}

template <class S>
__device__ __forceinline__ Storage<S>& storage() {
    static_assert(shared_bytes<S>() <= 232448, "more shared memory than a Hopper block can have");
    extern __shared__ u8 dynamic_shared[];
    const u32 misaligned = ptx::shared_address(dynamic_shared) % 1024;
    return *reinterpret_cast<Storage<S>*>(dynamic_shared + (misaligned ? 1024 - misaligned : 0));
}

// Initialises the barriers; one thread calls it before __syncthreads.
template <class S>
__device__ __forceinline__ void init_barriers(Storage<S>& shared) {
    constexpr u32 kWarps = 4, kMathWarps = 2 * kWarps, kLoader = 1;
    for (int g = 0; g < 2; ++g) {
        ptx::barrier_init(ptx::shared_address(&shared.q_full[g]), 1);
        ptx::barrier_init(ptx::shared_address(&shared.q_empty[g]), kWarps);
    }
    for (int s = 0; s < kStages; ++s) {
        ptx::barrier_init(ptx::shared_address(&shared.k_full[s]), 1);
        ptx::barrier_init(ptx::shared_address(&shared.k_empty[s]), kMathWarps);
        ptx::barrier_init(ptx::shared_address(&shared.v_full[s]), 1);
        ptx::barrier_init(ptx::shared_address(&shared.v_empty[s]), kMathWarps);
    }
    for (int r = 0; r < kRecords; ++r) {
        ptx::barrier_init(ptx::shared_address(&shared.record_full[r]), 32);
        ptx::barrier_init(ptx::shared_address(&shared.record_empty[r]), kMathWarps + kLoader);
    }
    ptx::barrier_init_fence();
}

// Arrives once per warp at a barrier, after the reads and writes of all lanes of the warp.
__device__ __forceinline__ void arrive(u64& barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
        ptx::barrier_arrive(ptx::shared_address(&barrier));
    }
}

__device__ __forceinline__ void wait(u64& barrier, u32 parity) {
    ptx::barrier_wait(ptx::shared_address(&barrier), parity);
}

// Arrives at the named barrier of ptx::group_sync<Number, Threads> without waiting for the other threads.
template <int Number, int Threads>
__device__ __forceinline__ void group_arrive() {
    asm volatile("bar.arrive %0, %1;" ::"n"(Number), "n"(Threads) : "memory");
}

// Returns the number of tiles that contain `keys` keys.
template <class S>
__device__ __forceinline__ i32 tiles_of(i32 keys) {
    return (keys + S::Keys - 1) / S::Keys;
}

// A position in a ring of N stages, and the parity of the current phase of its barriers.
template <int N>
struct Cursor {
    u32 stage = 0, parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == N) {
            stage = 0;
            parity ^= 1;
        }
    }
};

}  // namespace sparrow_dense
