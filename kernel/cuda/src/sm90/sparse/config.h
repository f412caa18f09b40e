// Shapes of the sparse-attention kernels.
//
// A unit of work is 64 heads of one query row over one segment of its selected keys. Keys are processed in blocks of
// 64. A block in shared memory is Tiles tiles of [64 keys][64 columns] of 16 bits, in rows of 128 bytes with the
// 128-byte swizzle. The same bytes are K (transposed) for the scores and V for the output.
#pragma once

#include "sm90/sparse/args.h"

namespace sparrow_sparse {

constexpr int kHeads = 64;             // heads per unit: rows of the tensor-core tile
constexpr int kKeys = 64;              // keys per block
constexpr int kTileColumns = 64;       // columns per tile
constexpr int kTileBytes = 64 * 128;   // bytes of a tile of queries or keys, [64][64] of 16 bits
constexpr int kValues = 512;           // columns of V
constexpr int kHalfTiles = 4;          // tiles of V that one math warpgroup owns
constexpr int kHalfColumns = kHalfTiles * kTileColumns;

// Parts of a block that are filled and freed separately: part 0 has the four tiles of the score group's output columns,
// part 1 the other tiles.
constexpr int kParts = 2;
constexpr int kPartTiles[kParts] = {0, kHalfTiles};  // first tile of each part

// With SPARROW_EVERY_KEY (sm90/latent), rows attend to every key of a sequence instead of selected keys. indices are
// then page tables, and a page has the 64 keys of one block. The second stream has no keys; its lens hold the
// page-table number of each row.
#ifdef SPARROW_EVERY_KEY
constexpr bool kEvery = true;
#else
constexpr bool kEvery = false;
#endif

// Properties of rows of V4.1 (shared_rows.cuh). interleaved: the columns of every group of eight are in the order 0, 4,
// 1, 5, 2, 6, 3, 7 in queries, keys and output accumulators. key_shift: the keys of some blocks are divided by this
// power of two in shared memory.
template <class Rows>
constexpr bool interleaved() {
    return false;
}
template <class Rows>
constexpr int key_shift() {
    return 0;
}

// Fetching threads of the kernels with one thread block per unit. With 128, a product has 256 columns; with more, fewer
// registers per thread remain at launch, and a product has 128 columns.
template <class Rows>
constexpr int fetch_threads() {
    return 128;
}

// The lower bound of the running maximum. It is finite, so that a block without a valid key gives no NaN.
constexpr float kLowest = -1e30f;

// Warpgroup 0 computes scores, softmax and output columns 0-255; warpgroup 1 computes output columns 256-511; warpgroup
// 2 fetches rows. With a fourth warpgroup, a thread would have 128 registers at launch, but the compiler needs 158 for
// a product with an accumulator of [64, 256].
constexpr int kFetchers = 128;
constexpr int kThreads = 256 + kFetchers;

// Registers per thread at launch: the largest multiple of eight that three warpgroups can have. setmaxnreg.inc to
// fewer registers than this is an illegal instruction.
constexpr int kLaunchRegisters = 168;

// Registers per thread of the score, value and fetching warpgroups.
template <int ScoreRegs, int ValueRegs, int FetchRegs>
struct Registers {
    static constexpr int Score = ScoreRegs, Value = ValueRegs, Fetch = FetchRegs;
    static_assert(Score + Value + Fetch <= 3 * kLaunchRegisters,
        "more registers than the launch got: a group would wait for them for ever");
    static_assert(Score >= kLaunchRegisters && Value <= kLaunchRegisters && Fetch <= kLaunchRegisters,
        "the score group grows, the others shrink");
};

// Registers per thread with two fetching warpgroups, and at their launch.
constexpr int kWideLaunchRegisters = 128;
template <int ScoreRegs, int ValueRegs, int FetchRegs>
struct WideRegisters {
    static constexpr int Score = ScoreRegs, Value = ValueRegs, Fetch = FetchRegs;
    static_assert(Score + Value + 2 * Fetch <= 4 * kWideLaunchRegisters,
        "more registers than the launch got: a group would wait for them for ever");
    static_assert(Score >= kWideLaunchRegisters && Value >= kWideLaunchRegisters && Fetch <= kWideLaunchRegisters,
        "the score and value groups grow, the others shrink");
};

}  // namespace sparrow_sparse
