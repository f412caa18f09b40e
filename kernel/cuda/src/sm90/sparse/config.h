// Shapes of the sparse-attention kernels.
//
// A unit of work is 64 heads of one query row over one segment of its selected keys. Keys come in blocks of 64. A
// block in shared memory is Tiles tiles of [64 keys][64 columns] of 16 bits, rows of 128 bytes with the 128-byte
// swizzle; the same bytes are K (transposed) in the scores and V in the output.
#pragma once

#include "sm90/sparse/args.h"

namespace sparrow_sparse {

constexpr int kHeads = 64;             // heads of a unit: rows of the tensor-core tile
constexpr int kKeys = 64;              // keys of a block
constexpr int kTileColumns = 64;       // columns of a tile
constexpr int kTileBytes = 64 * 128;   // both of queries and of keys
constexpr int kValues = 512;           // columns of V
constexpr int kHalfTiles = 4;          // tiles of V that one math warpgroup owns
constexpr int kHalfColumns = kHalfTiles * kTileColumns;

// Parts of a block that are filled and freed apart: the tiles of the score group's columns, and the others.
constexpr int kParts = 2;
constexpr int kPartTiles[kParts] = {0, kHalfTiles};  // first tile of each

// Rows attend to every key of a sequence instead of selected ones (sm90/latent): the lists are page tables, a page has
// the 64 keys of a block, and the second stream has no keys but says which table is a row's.
#ifdef SPARROW_EVERY_KEY
constexpr bool kEvery = true;
#else
constexpr bool kEvery = false;
#endif

// The lower bound of the running maximum: finite, so that a block without a valid key gives no NaN.
constexpr float kLowest = -1e30f;

// Warpgroups: 0 scores, softmax and output columns 0-255; 1 output columns 256-511; 2 fetches rows. A fourth would
// leave a launch fewer than the 158 registers per thread that the compiler wants for a product of 256 columns.
constexpr int kFetchers = 128;
constexpr int kThreads = 256 + kFetchers;

// Registers of a thread at launch: as many as three warpgroups can have in eights. Growing to fewer is an illegal
// instruction.
constexpr int kLaunchRegisters = 168;

// Registers of a thread of each warpgroup.
template <int ScoreRegs, int ValueRegs, int FetchRegs>
struct Registers {
    static constexpr int Score = ScoreRegs, Value = ValueRegs, Fetch = FetchRegs;
    static_assert(Score + Value + Fetch <= 3 * kLaunchRegisters,
        "more registers than the launch got: a group would wait for them for ever");
    static_assert(Score >= kLaunchRegisters && Value <= kLaunchRegisters && Fetch <= kLaunchRegisters,
        "the score group grows, the others shrink");
};

}  // namespace sparrow_sparse
