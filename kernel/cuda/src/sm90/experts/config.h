// Tile shapes of the expert matrix products, and the order of summation.
//
// An item is 256 weight rows by up to 128 tokens of an expert. The weight rows are two halves of 128: gate and up of
// the same inner columns, or rows of down.
//
//   up to 64 tokens  Weights are the rows of the tensor-core tile and tokens its 16, 32 or 64 columns, so that all 64
//                    rows of a tile are used. Each of the two math warpgroups has 64 weight rows of each half. For e2m1
//                    weights that are widened to e4m3 there is also a kernel for up to 16 tokens, with two blocks per
//                    SM.
//   more than 64     Tokens are the rows, 64 per warpgroup, and the 128 weight rows of each half are the columns. A
//                    lane then has two tokens and needs two scales. With tokens as columns it would need 32 scales,
//                    and reading them would take a third of the shared-memory bandwidth.
//
// Bits: k is not split (tile.cuh), so the result of a row depends only on the row and the weights.
#pragma once

#include "sm90/experts/args.h"
#include "sm90/tile.cuh"

namespace sparrow_experts {

using namespace sparrow_tile;

constexpr int kOperandRows = 64;
constexpr int kOperandBytes = kOperandRows * kBlockBytes;
constexpr int kTileRows = 256;
constexpr int kTileBytes = kTileRows * kBlockBytes;
constexpr int kGroups = 2;  // math warpgroups
constexpr int kMathThreads = 128 * kGroups;
constexpr int kThreads = kMathThreads + 128;  // math warpgroups and one copy warpgroup
constexpr int kMaxExperts = 512;
// Bytes of a staged token: 64 values of 16 bits, and padding so that accesses to eight tokens have no bank conflicts.
constexpr int kPitch = 144;

// The matrix product: gate and up with the activation, or down.
enum class Step { kGateUp, kDown };

// The storage format of a weight type, and the registers of the warpgroups (Shape).
template <class T>
struct Stored {
    static constexpr bool Widened = false, Folds = false;
    static constexpr int TileBytes = kTileBytes;
    static constexpr int MathRegisters = 224, CopyRegisters = 56;
};

// e2m1 weights that are widened to bf16 when they are loaded (e2m1.cuh).
struct E2m1 : Bf16 {};

template <>
struct Stored<E2m1> {
    static constexpr bool Widened = true, Folds = false;
    static constexpr int CodeBytes = kTileRows * 32;             // 64 values of four bits per row
    static constexpr int TileBytes = CodeBytes + kTileRows * 2;  // codes, and two scale bytes per row
    static constexpr int MathRegisters = 208, CopyRegisters = 88;
};

// e2m1 weights whose scales are folded into e4m3 codes when they are loaded (folded.cuh).
struct Folded : E4m3 {};

template <>
struct Stored<Folded> {
    static constexpr bool Widened = true, Folds = true;
    static constexpr int Pieces = 16;                      // pieces of 16 rows per tile
    static constexpr int CodeBytes = 16 * 64;              // 16 rows of 128 values of four bits
    static constexpr int PieceBytes = CodeBytes + 16 * 4;  // codes, and four scale bytes per row
    static constexpr int TileBytes = Pieces * PieceBytes;
    static constexpr int MathRegisters = 224, CopyRegisters = 56;
};

// Shared memory in addition to the ring of stages: the stored tiles in flight if weights are widened into stages, or
// the lookup table of weights that are widened in registers.
template <class T, int Ahead>
struct Incoming {};

template <int Ahead>
struct Incoming<E2m1, Ahead> {
    alignas(128) u8 tiles[Ahead][Stored<E2m1>::TileBytes];
    u64 arrived[Ahead];
};

template <int Ahead>
struct Incoming<Folded, Ahead> {
    alignas(8) u8 codes[15][8];  // e4m3 codes of the eight magnitudes, for each relative exponent from -8 to 6
};

// Tokens: maximum tokens of an item. Alone: one thread block per SM, even if two would fit.
template <class T, Step Which, int Tokens, int RingStages, int AheadTiles = 5, bool Alone = false>
struct Shape {
    using Type = T;
    static constexpr Step kStep = Which;
    static constexpr int MaxTokens = Tokens;
    static constexpr int Stages = RingStages;
    static constexpr int Ahead = AheadTiles;  // stored tiles in flight, if weights are widened into stages
    static constexpr bool Held = Stored<T>::Folds;  // the math warps convert the weights to e4m3 in registers
    static constexpr int Threads = kThreads;
    // Number of blocks per SM. Conversion to e4m3 is a chain of dependent instructions; with two blocks, twice as many
    // warps hide its latency.
    static constexpr int Blocks = Held && Tokens == 16 && !Alone ? 2 : 1;
    // Registers per thread of the math warpgroups and of the copy warpgroup. Over all three warpgroups, at most 504 = 3
    // x 168, the registers at launch; with two blocks per SM, 240 = 3 x 80.
    static constexpr int MathRegisters = Blocks == 2 ? 96 : Stored<T>::MathRegisters;
    static constexpr int CopyRegisters = Blocks == 2 ? 48 : Stored<T>::CopyRegisters;
    static constexpr int Columns = Tokens < 64 ? Tokens : 64;  // maximum tokens that are columns of a tile
    static constexpr int StageBytes = Held ? Stored<T>::TileBytes : kTileBytes;  // bytes of weights per stage
    static constexpr int InputBytes = Tokens * kBlockBytes;
    static constexpr int PassTokens = Tokens / 2;  // tokens that are staged for the output at a time
    // Floats for the tokens of a lane, and padding so that four lanes have no bank conflicts.
    static constexpr int ScalePitch = Tokens / 4 + 4;
};

template <class S>
struct Storage {
    static_assert(S::StageBytes % 1024 == 0 && S::InputBytes % 1024 == 0, "whole atoms of the swizzle");
    static constexpr bool Widened = Stored<typename S::Type>::Widened && !S::Held;
    // Tensor-core operands must start at multiples of 1024 bytes. A stage of e2m1, 17 * 1024 bytes, is also such a
    // multiple.
    u8 weights[S::Stages][S::StageBytes];
    u8 inputs[S::Stages][S::InputBytes];
    u8 staged[kGroups][S::PassTokens * kPitch];
    // The experts that have rows (pack_listed), and one entry after the last, whose first row is the end of the last
    // expert.
    uint2 list[kMaxExperts + 2];
    // Scales of tokens (scale_at), then two scales, one for each half of the weights.
    float scales[S::Stages][4 * S::ScalePitch + 4];
    // Used if tokens are columns. Gate and up: the maximum of a warp's 16 inner columns per token. Down: the pair of
    // each token.
    float largest[4 * kGroups][S::Columns];
    i32 pairs[kGroups][S::Columns];
    i32 warp_pairs[4 * kGroups][16];  // down, tokens are rows: the pairs of a warp's 16 tokens, read only by that warp
    // [groups][tokens] gate and up: inverse of the scale of a token's 128 inner columns.
    float inverse[kGroups][S::Columns];
    u64 full[S::Stages], empty[S::Stages];
    i32 listed;  // number of entries of list
    Incoming<typename S::Type, S::Ahead> incoming;
};

template <class S>
constexpr u32 shared_bytes() {
    // The driver reserves 1024 bytes for each block.
    constexpr u32 kLimit = S::Blocks == 2 ? (kSharedLimit + 1024) / 2 - 1024 : kSharedLimit;
    static_assert(sizeof(Storage<S>) + 1024 <= kLimit, "more shared memory than a Hopper block can have");
    return sizeof(Storage<S>) + 1024;
}

template <class S>
__device__ __forceinline__ Storage<S>& storage() {
    extern __shared__ u8 dynamic_shared[];
    const u32 misaligned = ptx::shared_address(dynamic_shared) % 1024;
    return *reinterpret_cast<Storage<S>*>(dynamic_shared + (misaligned ? 1024 - misaligned : 0));
}

// Packs a ListedView into eight bytes. Its count is the first row of the next entry minus its own first row. before
// fits in 16 bits, because there are at most 512 + 131072 / 16 groups.
__device__ __forceinline__ uint2 pack_listed(i32 expert, i32 first, i32 before) {
    return make_uint2(static_cast<u32>(expert) | static_cast<u32>(before) << 16, static_cast<u32>(first));
}

// One work item: a tile of an expert's weights, multiplied by a group of the expert's tokens.
struct Item {
    i32 expert;
    i32 tile;
    i32 first;  // place of the group's first token in the sorted order
    i32 count;  // tokens of the group
};

// Returns the index of the scale of token t. With up to 64 tokens, the scales of a lane (two of every eight tokens)
// are adjacent.
template <class S>
__device__ __forceinline__ u32 scale_at(u32 t, i32 columns) {
    return columns > 64 ? t : t / 2 % 4 * S::ScalePitch + t / 8 * 2 + t % 2;
}

// Returns the number of columns of the instruction that multiplies a group of count tokens.
__device__ __forceinline__ i32 columns_of(i32 count) {
    return count <= 16 ? 16 : count <= 32 ? 32 : count <= 64 ? 64 : 128;
}

// Iterates over the items of a cluster of Blocks thread blocks: with n clusters, every n-th item. The items of an
// expert are ordered by tile, then by group, so that thread blocks that share a weight tile run at the same time.
//
// With groups of 128 tokens, two adjacent blocks exchange their items in every second round. Otherwise, if most experts
// have two groups, one block of a pair would always have the smaller second group. It would get ahead of the other
// block, and the pair would read each weight tile twice from memory.
template <class S, u32 Blocks = 1>
struct Walk {
    static constexpr bool Exchanged = Blocks == 1 && S::MaxTokens == 128;
    i32 at = 0;  // place in the list of the expert of the last item
    i32 item = blockIdx.x / Blocks;

    // Sets out to the next item and returns true, or returns false if no items are left.
    __device__ __forceinline__ bool next(const Storage<S>& shared, i32 tiles, Item& out) {
        constexpr i32 group_rows = S::MaxTokens;
        for (; at < shared.listed; ++at) {
            const uint2 e = shared.list[at];
            const i32 first = static_cast<i32>(e.y), count = static_cast<i32>(shared.list[at + 1].y) - first;
            const i32 groups = (count + group_rows - 1) / group_rows;
            const i32 local = item - static_cast<i32>(e.x >> 16) * tiles;
            if (local < groups * tiles) {
                const i32 tile = local / groups, skip = (local - tile * groups) * group_rows;
                out = Item{static_cast<i32>(e.x & 0xFFFF), tile, first + skip, min(group_rows, count - skip)};
                item += gridDim.x / Blocks;
                if (Exchanged && gridDim.x % 2 == 0) {
                    item ^= 1;
                }
                return true;
            }
        }
        return false;
    }
};

// Copies four bytes from global to shared memory asynchronously (copies_wait), or writes four zero bytes if valid is
// false.
__device__ __forceinline__ void copy_4(void* dst, const void* src, bool valid = true) {
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 4, %2;" ::"r"(ptx::shared_address(dst)), "l"(src),
                 "r"(valid ? 4 : 0)
                 : "memory");
}

// Barriers: group_barrier for one math warpgroup, both_barrier for both.
__device__ __forceinline__ void group_barrier(u32 group) {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
}
__device__ __forceinline__ void both_barrier() { asm volatile("bar.sync 3, 256;" ::: "memory"); }

}  // namespace sparrow_experts
