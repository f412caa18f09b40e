// Shapes of the dense-attention kernels.
//
// A unit of work is one head of a tile of 128 query rows with a common first key. Each of two math warpgroups has 64 of
// the rows. Tiles of keys begin at the first key, so that the order of a row's sums does not depend on the other rows
// of its tile. All operands are in shared memory as bf16 tiles of [rows][64 columns], in rows of 128 bytes with the
// 128-byte swizzle.
#pragma once

#include "sm90/dense/args.h"

namespace sparrow_dense {

constexpr int kGroupRows = 64;                // query rows of a math warpgroup
constexpr int kUnitRows = 2 * kGroupRows;     // query rows of a unit
constexpr int kColumnTile = 64;               // columns of a tile in shared memory
constexpr int kTileRowBytes = kColumnTile * 2;
constexpr int kStages = 2;                    // stages of keys, and stages of values, one tile each
constexpr int kRecords = 4;                   // records: units in progress, and the next units

// Warpgroups 0 and 1 are the math warpgroups. In warpgroup 2 one warp issues copies and one warp finds units.
constexpr int kThreads = 384;

// NopeTiles and ValueTiles are the numbers of tiles of 64 columns in a head's keys (without the 64 rotary columns)
// and values. TileKeys is the number of keys in a tile. HeldTiles tiles of a query are in registers, which saves
// shared-memory bandwidth.
template <int NopeTiles, int ValueTiles, int TileKeys, int HeldTiles>
struct Shape {
    static constexpr int Nope = NopeTiles, Value = ValueTiles, Keys = TileKeys, Held = HeldTiles;
    static constexpr int Query = NopeTiles + 1;               // tiles of 64 columns of a query
    static constexpr int Columns = ValueTiles * kColumnTile;  // columns of the result of a head
    static constexpr int KeyTileBytes = Keys * kTileRowBytes;
    static constexpr int QueryTileBytes = kGroupRows * kTileRowBytes;
    static constexpr int Steps = Keys / 16;  // products of 16 keys per tile of values
    static_assert(Keys % 16 == 0, "products take 16 keys");
};

}  // namespace sparrow_dense
