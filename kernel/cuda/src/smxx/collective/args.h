// Arguments of the collective operations over several ranks.
#pragma once
#include "smxx/base.h"

constexpr i32 kMaxRanks = 8;
// Maximum blocks per rank. All blocks of eight ranks can then be resident at the same time, even on one device.
constexpr i32 kMaxBlocks = 32;

struct AllReduceArgs {
    void* x;  // [bytes] this rank's addend, overwritten by the sum; this and the other addresses are multiples of 16
    u8* staging[kMaxRanks]; // staging memory of every rank: two halves, used in alternate rounds
    u32* flags[kMaxRanks];  // words [2, kMaxBlocks, kMaxRanks] of every rank, initially zero
    u32* state;             // three words of this rank: rounds, blocks that have ended, fault; initially zero
    i64 half;               // bytes of half of the staging memory
    i64 bytes;              // bytes of x, a multiple of 16
    i64 timeout;            // nanoseconds that a block waits for another rank before it reports a fault
    i32 type;               // f32 or bf16
    i32 rank;
    i32 ranks;
    i32 blocks;             // blocks of the grid, equal on all ranks
};

// All-gather: the rows of all ranks are copied to every rank.
struct GatherRanksArgs {
    AllReduceArgs peers;  // x: this rank's rows; bytes: maximum over the ranks; type is not used
    u8* out;              // output rows of all ranks; the rows of rank r begin at byte first[r]
    i64 first[kMaxRanks];
    i64 x_stride;         // bytes between rows of x; this, row_bytes and first are multiples of unit
    i64 out_stride;       // bytes between rows of out
    i32 rows[kMaxRanks];  // number of rows of each rank
    i32 row_bytes;
    i32 unit;             // bytes that a thread copies at a time, 16 or 4; all addresses are multiples of unit
};

// Reduce-scatter: rows are summed over ranks, and every rank receives its own columns of the sum.
struct ReduceScatterArgs {
    AllReduceArgs peers;  // x: rows of ranks * row_bytes; bytes: total of all rows
    u8* out;              // [rows, row_bytes] columns of this rank
    i64 x_stride;         // bytes between rows of x; this and row_bytes are multiples of 16
    i64 out_stride;       // bytes between rows of out
    i32 rows;
    i32 row_bytes;        // bytes of a row of out
};

// Conversion of global ids to ids within the part that this rank holds.
struct PartIdsArgs {
    const i32* ids;  // [rows, columns]; negative: none
    i32* out;        // [rows, columns], contiguous: id - first; -1: an id of another rank, or none
    u32* faults;     // one word of fault bits, or null
    i64 id_stride;   // entries between rows
    i32 rows;
    i32 columns;
    i32 first;       // first id of this rank
    i32 count;       // number of ids of this rank
    i32 all;         // number of ids of all ranks
    u32 fault;       // fault bit for an id that no rank has
};
