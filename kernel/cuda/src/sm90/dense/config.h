// Shapes of the dense-attention kernels.
//
// A unit of work is one head of a tile of 128 query rows that see the same keys from the same start. Each of two math
// warpgroups has 64 of the rows. Keys come in tiles whose bounds are counted from the start, so that a row adds up
// the same numbers in the same order whatever rows share its tile. All operands lie in shared memory as tiles of
// [rows][64 columns] bf16, rows of 128 bytes with the 128-byte swizzle.
#pragma once

#include "sm90/dense/args.h"

namespace sparrow_dense {

constexpr int kGroupRows = 64;                // query rows of a math warpgroup
constexpr int kUnitRows = 2 * kGroupRows;     // of a unit
constexpr int kColumnTile = 64;               // columns of a tile in shared memory
constexpr int kTileRowBytes = kColumnTile * 2;
constexpr int kStages = 2;                    // tiles of keys, and of values, in shared memory
constexpr int kRecords = 4;                   // units in work and known ahead

// Warpgroups 0 and 1 do the arithmetic; of warpgroup 2 one warp asks for copies and one finds units.
constexpr int kThreads = 384;

// NopeTiles and ValueTiles count tiles of 64 columns of a head's keys (without the rotated 64) and values; Keys are
// the keys of a tile; Held tiles of a query are kept in registers, which spares the port of shared memory.
template <int NopeTiles, int ValueTiles, int TileKeys, int HeldTiles>
struct Shape {
    static constexpr int Nope = NopeTiles, Value = ValueTiles, Keys = TileKeys, Held = HeldTiles;
    static constexpr int Query = NopeTiles + 1;               // tiles of a query
    static constexpr int Columns = ValueTiles * kColumnTile;  // of the result
    static constexpr int KeyTileBytes = Keys * kTileRowBytes;
    static constexpr int QueryTileBytes = kGroupRows * kTileRowBytes;
    static constexpr int Steps = Keys / 16;  // products of a tile of values
    static_assert(Keys % 16 == 0, "products take 16 keys");
};

}  // namespace sparrow_dense
