// Shared memory of two thread blocks that share a unit of rows of V4.1 (shared_duo.cuh), and its barriers.
#pragma once

#include "sm90/sparse/duo_storage.cuh"
#include "sm90/sparse/shared_rows.cuh"

namespace sparrow_sparse {

struct SharedDuoRows : SharedFormat {};
template <>
constexpr int key_shift<SharedDuoRows>() {
    return SharedFormat::kShift;
}

constexpr u32 kHalfBytes = kHalfTiles * kTileBytes;

// Names are those of DuoStorage. The value columns of key block n are in values[n % kRing].
struct SharedDuoStorage {
    static constexpr u32 kRing = 3;
    u8 q[SharedFormat::Tiles * kTileBytes];
    u8 values[kRing][kHalfBytes];  // this thread block's value columns of a key block
    u8 rest[kHalfBytes];           // the other columns of a key block that this thread block owns
    u8 own_weights[kTileBytes];    // [64][64] of 16 bits: weights of a key block that this thread block owns
    u8 weights[kTileBytes];        // those of a key block that the other thread block owns
    LaneSums sums[128], own_sums[128];
    float base[kHeads], largest[kHeads], final[kHeads];
    u64 valid;
    // The value group frees values, the score group frees rest. own_free: both value groups have read own_weights, and
    // the sums that were sent with them.
    u64 values_full[kRing], values_free[kRing], rest_full, rest_free;
    u64 own_full, own_free, sums_free, other_full;
    u64 base_full, largest_full, final_full;
};

__device__ __forceinline__ void shared_duo_init(SharedDuoStorage& shared) {
    constexpr u32 kWarps = 4, kGroup = 128, kFetchers = kDuoFetchers;
    const auto init = [](u64& b, u32 n) { ptx::barrier_init(ptx::shared_address(&b), n); };
    for (u32 i = 0; i < SharedDuoStorage::kRing; ++i) {
        init(shared.values_full[i], kFetchers);
        init(shared.values_free[i], kWarps);
    }
    init(shared.rest_full, kFetchers);
    init(shared.rest_free, kWarps);
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

// The place of key block n in the ring, and how often the ring has been filled before, modulo 2.
struct RingPlace {
    u32 slot, parity;

    __device__ __forceinline__ explicit RingPlace(i32 n) {
        const u32 turn = static_cast<u32>(n) / SharedDuoStorage::kRing;
        slot = static_cast<u32>(n) - turn * SharedDuoStorage::kRing;
        parity = turn & 1;
    }
};

// Loads the queries of 64 heads, converts them and stores them; heads beyond the last are zeros. The score and value
// groups call it. Their threads t have chunk t % 8 of every tile of heads t / 8 and t / 8 + 32.
__device__ __forceinline__ void take_queries(const SparseAttendArgs& args, SharedDuoStorage& shared,
    const DuoUnit& unit) {
    constexpr u32 kTakers = 256;
    const u32 t = threadIdx.x, chunk = t % 8, base = ptx::shared_address(shared.q);
    uint4 w[2][SharedFormat::Tiles];
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
        const i32 head = unit.head + static_cast<i32>(t / 8 + i * 32);
        const u8* src = reinterpret_cast<const u8*>(args.q + unit.row * args.q_stride +
            static_cast<i64>(head) * (SharedFormat::Tiles * kTileColumns)) + chunk * 16;
#pragma unroll
        for (u32 tile = 0; tile < SharedFormat::Tiles; ++tile) {
            w[i][tile] = head < args.heads ? load_16(src + tile * 128) : make_uint4(0, 0, 0, 0);
        }
    }
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
#pragma unroll
        for (u32 tile = 0; tile < SharedFormat::Tiles; ++tile) {
            u32 v[4] = {w[i][tile].x, w[i][tile].y, w[i][tile].z, w[i][tile].w};
            interleave<SharedFormat::Type>(v);
            store_16(base + tile * kTileBytes + tile_byte(t / 8 + i * 32, chunk), v[0], v[1], v[2], v[3]);
        }
    }
    ptx::fence_async_proxy();
    ptx::group_sync<3, kTakers>();
}

}  // namespace sparrow_sparse
