// Expands selected pools to the cache slots of their tokens: the tokens of each pool in ascending order, then the
// tokens that are not yet in a complete pool, then -1. A pool that is not completely visible to the row, or a token
// beyond its page table, raises a fault.
//
// Block: one row; thread t takes pools t, t + 256, ...
#pragma once
#include "smxx/floats.cuh"
#include "smxx/linear/args.h"

DEVICE void spread_pools_body(const SpreadPoolsArgs& a) {
    __shared__ i32 chosen;
    begin_after_previous();
    const i64 row = blockIdx.x;
    const i32* pools = a.pools + row * a.pool_stride;
    i32* out = a.out + row * a.out_stride;
    const i32 seen = max(a.seen[row], 0), whole = seen / a.pool, table_row = a.table_rows[row];
    const i32* table = a.table + table_row * a.table_stride;
    const bool there = table_row >= 0 && table_row < a.tables;
    if (threadIdx.x == 0) chosen = 0;
    __syncthreads();
    const auto place = [&](i32 token) {
        const i32 page = token / a.page_tokens;
        if (there && page < a.table_columns) return table[page] * a.page_tokens + (token - page * a.page_tokens);
        raise_fault(a.faults, kFaultPosition);
        return -1;
    };
    for (i32 i = threadIdx.x; i < a.columns; i += kThreads) {
        const i32 p = pools[i];
        if (p < 0) continue; // negative entries come only after all pools
        if (p >= whole) raise_fault(a.faults, kFaultPosition);
        for (i32 j = 0; j < a.pool; j++) out[i * a.pool + j] = p < whole ? place(p * a.pool + j) : -1;
        atomicMax(&chosen, i + 1);
    }
    __syncthreads();
    const i32 tail = seen - whole * a.pool, listed = chosen * a.pool;
    for (i32 i = listed + threadIdx.x; i < a.columns * a.pool + a.pool - 1; i += kThreads)
        out[i] = i - listed < tail ? place(whole * a.pool + i - listed) : -1;
    if (threadIdx.x == 0) a.lengths[row] = listed + tail;
}
