// Argument struct of sums over ranks.
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
