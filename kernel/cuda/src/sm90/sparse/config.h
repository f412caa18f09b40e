// Shapes of the sparse-attention kernels.
//
// A unit of work is 64 heads of one query row over one segment of its selected keys. Keys come in blocks of 64. A block in shared memory
// is Tiles tiles of [64 keys][64 columns] bf16, rows of 128 bytes with the 128-byte swizzle; the same bytes are K (transposed) in the
// scores and V in the output.
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

// The lower bound of the running maximum: finite, so that a block without a valid key gives no NaN.
constexpr float kLowest = -1e30f;

// At most 384 threads: with more, a launch has fewer than 158 registers per thread, which the compiler wants for a product of 256 columns.
// Warpgroups: 0 scores, softmax and output columns 0-255; 1 output columns 256-511; the rest fetch rows.
template <int FetchGroups, int ScoreRegs, int ValueRegs, int FetchRegs>
struct Roles {
    static constexpr int Fetchers = 128 * FetchGroups;
    static constexpr int Threads = 256 + Fetchers;
    static constexpr int ScoreRegisters = ScoreRegs;
    static constexpr int ValueRegisters = ValueRegs;
    static constexpr int FetchRegisters = FetchRegs;
    static_assert((ScoreRegs + ValueRegs + FetchGroups * FetchRegs) * 128 <= 65536, "more registers than an SM has");
};

}  // namespace sparrow_sparse
