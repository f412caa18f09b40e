// Tile shapes of the index-score kernels. Both kernels compute, for a query row m and a key s,
//
//     out[m, s] = key_scale[s] * sum over heads h of weight[m, h] * max(0, q[m, h] . key[s])
//
// as matrix products of a tile of 64 keys (rows of the tensor-core instruction) by the heads of several query rows
// (its columns), so that the sum over heads stays inside groups of four lanes.
#pragma once

#include "ptx/types.h"

namespace sparrow_index {

constexpr int kHeadBytes = 128;      // e4m3 values (bytes) of one key or one query head
constexpr int kTileKeys = 64;        // keys per pipeline stage, which is one page of the paged cache
constexpr int kTileBytes = kTileKeys * kHeadBytes;
constexpr int kMathGroups = 4;       // math warpgroups, which multiply and reduce
constexpr int kThreads = 128 * (kMathGroups + 1);
constexpr int kMathRegisters = 112;  // 4 x 112 + 32 = 480 = 5 x 96, the registers at launch with 640 threads
constexpr int kCopyRegisters = 32;
constexpr int kCopyWarps = 4;        // warps of the copy warpgroup that issue page copies
constexpr int kItemStages = 2;       // query tiles in flight
constexpr int kMaxRows = 8;          // maximum query rows per item: 256 columns / 32 heads

// An item is a set of query rows that share a query tile: Rows query rows of Heads heads each, Columns = Heads * Rows
// columns in all. An instruction has at most 128 columns, so 256 columns are two column groups with separate math
// groups. A key is therefore loaded once for all 256 columns.
template <int HeadCount, int RowCount>
struct Shape {
    static constexpr int Heads = HeadCount;
    static constexpr int Rows = RowCount;
    static constexpr int Columns = Heads * Rows;
    static constexpr int ColumnGroups = Columns > 128 ? 2 : 1;
    static constexpr int TileGroups = kMathGroups / ColumnGroups;  // math groups that process key tiles in turn
    static constexpr int N = Columns / ColumnGroups;
    static constexpr int GroupRows = N / Heads;
    static constexpr int KeyStages = 16;

    static_assert(Heads == 32 || Heads == 64, "32 or 64 heads; pad fewer with zero weights");
    static_assert(Columns <= 256 && Rows <= kMaxRows, "at most 256 columns per item");
};

}  // namespace sparrow_index
