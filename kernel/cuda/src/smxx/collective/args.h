// Argument structs of the collective operations over several ranks.
#pragma once
#include "smxx/base.h"

constexpr i32 kMaxRanks = 8;
constexpr i32 kMaxBlocks = 32; // of eight ranks all are resident together on one device too

struct AllReduceArgs {
    void* x;                // [bytes]: this rank's part of the sum, then the sum; multiple of 16, as other addresses
    u8* staging[kMaxRanks]; // of every rank: two halves that rounds use in turn
    u32* flags[kMaxRanks];  // of every rank: [2, kMaxBlocks, kMaxRanks], zero at first
    u32* state;             // of this rank: rounds, blocks that have ended, fault; zero at first
    i64 half;               // bytes of a half
    i64 bytes;              // of x, a multiple of 16
    i64 timeout;            // nanoseconds that a block waits for another rank
    i32 type;               // f32 or bf16
    i32 rank;
    i32 ranks;
    i32 blocks;             // of the grid, the same on all ranks
};

// All-gather: the rows of all ranks are copied to every rank.
struct GatherRanksArgs {
    AllReduceArgs peers;  // x: this rank's rows; bytes: of the rank that has the most; type is not used
    u8* out;              // the rows of rank r begin first[r] bytes behind it
    i64 first[kMaxRanks];
    i64 x_stride;         // bytes between rows, multiples of unit as row_bytes and first
    i64 out_stride;       // bytes between rows
    i32 rows[kMaxRanks];  // of each rank
    i32 row_bytes;
    i32 unit;             // bytes that a thread copies at once: 16 or 4; addresses are multiples of it
};

// Reduce-scatter: rows are summed over ranks, and every rank gets its own columns of the sum.
struct ReduceScatterArgs {
    AllReduceArgs peers;  // x: rows of ranks * row_bytes; bytes: of all of them
    u8* out;              // [rows, row_bytes]: columns of this rank
    i64 x_stride;         // bytes between rows, multiples of 16 as row_bytes
    i64 out_stride;       // bytes between rows
    i32 rows;
    i32 row_bytes;        // of out
};

// Conversion of global ids to ids within the part that this rank holds.
struct PartIdsArgs {
    const i32* ids;  // [rows, columns]; negative: none
    i32* out;        // [rows, columns] without gaps: the number among the rank's own, -1: another rank's, or none
    u32* faults;     // one word of fault bits, or null
    i64 id_stride;   // entries between rows
    i32 rows;
    i32 columns;
    i32 first;       // number of the rank's first
    i32 count;       // of the rank's
    i32 all;         // of all ranks'
    u32 fault;       // raised by a number that no rank has
};
