// The common part of the index-score kernels: the shared-memory pipeline and the four math warpgroups. Copy warps
// (ragged.cuh, paged.cuh) copy key tiles and items: a query tile, its weights and a record with the range of keys to
// store. The math groups multiply, reduce over heads and store.
//
// Overlap: A group multiplies a tile, waits, reduces it, and takes the next one. Four groups do this concurrently, so
// that the tensor cores multiply for one group while the others reduce. The reduction must therefore be short
// (reduce_heads).
//
// Bits: A score depends only on its query row and its key. The order of the sum over heads (chains inside a lane,
// then lanes xor 1, then lanes xor 2) is the same in every shape, so ragged and paged kernels give the same bits,
// alone or in any batch.
#pragma once

#include "ptx/barrier.cuh"
#include "ptx/copy.cuh"
#include "ptx/warp.cuh"
#include "ptx/wgmma.cuh"
#include "sm90/index/share.cuh"

namespace sparrow_index {

// The record of an item, which the copy warp writes for the math groups. Every lane of the copy warp arrives on
// item_full after its own writes.
struct Record {
    i32 item;          // output rows item*rows_per_item + j
    i32 key;           // first key of the first tile
    i32 tiles;         // key tiles of the item; 0 ends the work
    i32 origin[kMaxRows];  // key whose score is column 0 of row j
    i32 lo[kMaxRows];      // keys in [lo, hi) are stored for row j
    i32 hi[kMaxRows];
};

template <class S>
struct Storage {
    u8 query[kItemStages][S::Columns * kHeadBytes];  // swizzled rows of 128 bytes
    u8 keys[S::KeyStages][kTileBytes];               // swizzled rows of 128 bytes
    float scales[S::KeyStages][kTileKeys];
    float weights[kItemStages][S::Columns];
    Record records[kItemStages];
    u64 item_full[kItemStages], item_empty[kItemStages];
    u64 keys_full[S::KeyStages], keys_empty[S::KeyStages];
    ShareScratch scratch;
};

// Returns the dynamic shared memory of a launch: the storage, and padding to align it to a swizzle atom.
template <class S>
constexpr u32 shared_bytes() {
    return sizeof(Storage<S>) + 1024;
}

template <class S>
__device__ __forceinline__ Storage<S>& storage() {
    static_assert(sizeof(Storage<S>) + 1024 <= 232448, "more shared memory than a Hopper block can have");
    extern __shared__ u8 dynamic_shared[];
    u32 misaligned = ptx::shared_address(dynamic_shared) % 1024;
    return *reinterpret_cast<Storage<S>*>(dynamic_shared + (misaligned ? 1024 - misaligned : 0));
}

// Initialises the barriers; one thread calls it before __syncthreads.
template <class S>
__device__ __forceinline__ void init_barriers(Storage<S>& shared) {
    constexpr u32 kWarps = kMathGroups * 4;
    for (int i = 0; i < kItemStages; ++i) {
        ptx::barrier_init(ptx::shared_address(&shared.item_full[i]), 32);
        ptx::barrier_init(ptx::shared_address(&shared.item_empty[i]), kWarps);
    }
    for (int i = 0; i < S::KeyStages; ++i) {
        ptx::barrier_init(ptx::shared_address(&shared.keys_full[i]), 1);
        ptx::barrier_init(ptx::shared_address(&shared.keys_empty[i]), 4 * S::ColumnGroups);
    }
    ptx::barrier_init_fence();
}

// A position in a ring of Stages buffers, and the parity of the current phase of its barriers.
template <int Stages>
struct Cursor {
    i32 stage = 0;
    u32 parity = 0;

    __device__ __forceinline__ void advance(i32 by) {
        stage += by;
        if (stage >= Stages) {
            stage -= Stages;
            parity ^= 1;
        }
    }
};

// ReLU is computed with two instructions. max(x, 0) runs in the integer pipe at half rate. A multiplication that
// saturates to [0, 1] runs in the full-rate pipe and gives relu(x) * 2^-25 exactly, because |x| <= 128 * 448 * 448 <
// 2^25. Both are used so that neither pipe is the bottleneck. The weights of the columns that use max contain the
// factor 2^-25, and the key scale contains the inverse factor.
constexpr float kShrink = 0x1p-25f, kGrow = 0x1p25f;
constexpr int kMaxEvery = 2;  // one of kMaxEvery octets of heads uses max

__device__ constexpr bool through_max(int octet) {
    return octet % kMaxEvery == kMaxEvery - 1;
}

template <bool Max>
__device__ __forceinline__ float shrunk_relu(float x) {
    return Max ? fmaxf(x, 0.0f) : __saturatef(x * kShrink);
}

// Sums relu(product) * weight over the heads of each row, first inside the lane, then over the four lanes that share
// a key.
// In:  d[...] of a [64, N] tile, weights of this lane's two columns of every eight.
// Out: score[i] of the key 16*warp + lane/4 + 8*(lane%2) and of row 2*i + (lane/2)%2 (one row: the upper two lanes
//      hold copies).
template <class S>
__device__ __forceinline__ void reduce_heads(const float (&d)[S::N / 2], const float (&weight)[S::N / 4], u32 lane,
                                             float (&score)[(S::GroupRows + 1) / 2]) {
    constexpr int kOctets = S::Heads / 8;
    float sum[S::GroupRows][2];  // [row][key, key + 8]
#pragma unroll
    for (int r = 0; r < S::GroupRows; ++r) {
        float even[2] = {0.0f, 0.0f}, odd[2] = {0.0f, 0.0f};
#pragma unroll
        for (int o = 0; o < kOctets; ++o) {
            const int at = r * kOctets + o;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float x = d[at * 4 + half * 2], y = d[at * 4 + half * 2 + 1];
                even[half] = fmaf(through_max(o) ? shrunk_relu<true>(x) : shrunk_relu<false>(x), weight[at * 2],
                    even[half]);
                odd[half] = fmaf(through_max(o) ? shrunk_relu<true>(y) : shrunk_relu<false>(y), weight[at * 2 + 1],
                    odd[half]);
            }
        }
        sum[r][0] = even[0] + odd[0];
        sum[r][1] = even[1] + odd[1];
    }
    const bool odd_lane = lane & 1, upper = lane & 2;
#pragma unroll
    for (int r = 0; r < S::GroupRows; ++r) {
        const float keep = odd_lane ? sum[r][1] : sum[r][0], give = odd_lane ? sum[r][0] : sum[r][1];
        sum[r][0] = keep + __shfl_xor_sync(ptx::kFullMask, give, 1);
    }
    if constexpr (S::GroupRows == 1) {
        score[0] = sum[0][0] + __shfl_xor_sync(ptx::kFullMask, sum[0][0], 2);
    } else {
#pragma unroll
        for (int i = 0; i < S::GroupRows / 2; ++i) {
            const float keep = upper ? sum[2 * i + 1][0] : sum[2 * i][0],
                give = upper ? sum[2 * i][0] : sum[2 * i + 1][0];
            score[i] = keep + __shfl_xor_sync(ptx::kFullMask, give, 2);
        }
    }
}

// The output of a math group.
struct Output {
    float* scores;  // [items * rows_per_item, stride]
    i64 stride;     // floats between rows
    i32 rows_per_item;
};

// One math warpgroup, which processes items until a record without tiles. Group g computes columns [half*N, half*N + N)
// of every item, with half = g % ColumnGroups, and every TileGroups-th key tile of the block's share.
template <class S>
struct MathGroup {
    static constexpr int kScores = (S::GroupRows + 1) / 2;
    static constexpr int kStep = S::TileGroups;

    Storage<S>& shared;
    const u32 group, half, lane;
    const u32 in_tile;          // index in a tile of the key whose score this lane stores
    float weight[S::N / 4];
    u64 query;                  // operand descriptor of this group's columns
    float* to[kScores];         // addresses at which this lane stores the scores of the next tile
    u32 at[kScores];            // columns of these scores in the stored range of their row, [0, span)
    u32 span[kScores];
    u32 tile_count;             // number of this group's next tile in the share of the thread block

    __device__ __forceinline__ MathGroup(Storage<S>& s, u32 g)
        : shared(s),
          group(g),
          half(g % S::ColumnGroups),
          lane(threadIdx.x % 32),
          in_tile(threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4 + threadIdx.x % 2 * 8),
          tile_count(g / S::ColumnGroups) {}

    __device__ __forceinline__ u32 stage() const { return tile_count % S::KeyStages; }

    // Multiplies the next key tile.
    __device__ __forceinline__ void multiply(float (&d)[S::N / 2]) {
        ptx::barrier_wait(ptx::shared_address(&shared.keys_full[stage()]), tile_count / S::KeyStages & 1);
        const u64 keys = ptx::operand_128b(ptx::shared_address(shared.keys[0])) + stage() * (kTileBytes / 16);
        ptx::mma_pin(d);
        ptx::mma_fence();
#pragma unroll
        for (int k = 0; k < kHeadBytes / 32; ++k) {
            ptx::Mma<S::N>::run(d, keys + 2 * k, query + 2 * k, k != 0);
        }
        ptx::mma_commit();
        ptx::mma_wait<0>();
        ptx::mma_pin(d);
    }

    // Reduces and stores the tile. Its shared memory is released to the copy warp first.
    __device__ __forceinline__ void finish(const float (&d)[S::N / 2]) {
        const float scale = shared.scales[stage()][in_tile];
        __syncwarp();
        if (lane == 0) {
            ptx::barrier_arrive(ptx::shared_address(&shared.keys_empty[stage()]));
        }
        tile_count += kStep;
        float score[kScores];
        reduce_heads<S>(d, weight, lane, score);
#pragma unroll
        for (int i = 0; i < kScores; ++i) {
            if (at[i] < span[i]) {
                *to[i] = score[i] * (scale * kGrow);
            }
            at[i] += kStep * kTileKeys;
            to[i] += kStep * kTileKeys;
        }
    }

    // Loads the weights and output rows of an item. This group starts at tile `first` of the item.
    __device__ __forceinline__ void open(const Record& record, i32 item_stage, i32 first, const Output& out) {
        query = ptx::operand_128b(ptx::shared_address(shared.query[item_stage]) + half * S::N * kHeadBytes);
        const float* weights = shared.weights[item_stage] + half * S::N + 2 * (lane % 4);
#pragma unroll
        for (int o = 0; o < S::N / 8; ++o) {
            const float factor = through_max(o % (S::Heads / 8)) ? kShrink : 1.0f;
            weight[2 * o] = weights[8 * o] * factor;
            weight[2 * o + 1] = weights[8 * o + 1] * factor;
        }
        const i32 key = record.key + first * kTileKeys + static_cast<i32>(in_tile);
#pragma unroll
        for (int i = 0; i < kScores; ++i) {
            const i32 j = half * S::GroupRows + (S::GroupRows > 1 ? 2 * i + ((lane >> 1) & 1) : 0);
            const bool mine = S::GroupRows > 1 || (lane & 2) == 0;
            to[i] = out.scores + (static_cast<i64>(record.item) * out.rows_per_item + j) * out.stride +
                (key - record.origin[j]);
            at[i] = static_cast<u32>(key - record.lo[j]);
            span[i] = mine ? static_cast<u32>(record.hi[j] - record.lo[j]) : 0;
        }
    }

    __device__ void run(const Output& out) {
        Cursor<kItemStages> items;
        i32 tile = group / S::ColumnGroups;  // number of this group's next tile in the item
        for (;;) {
            ptx::barrier_wait(ptx::shared_address(&shared.item_full[items.stage]), items.parity);
            const Record& record = shared.records[items.stage];
            const i32 tiles = record.tiles;
            if (tiles == 0) {
                return;
            }
            open(record, items.stage, tile, out);
            for (; tile < tiles; tile += kStep) {
                float d[S::N / 2];
                multiply(d);
                finish(d);
            }
            tile -= tiles;
            __syncwarp();
            if (lane == 0) {
                ptx::barrier_arrive(ptx::shared_address(&shared.item_empty[items.stage]));
            }
            items.advance(1);
        }
    }
};

}  // namespace sparrow_index
