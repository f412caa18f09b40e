// Expands selected pools to the slots of their tokens, through a page table or by adding the offset of a row: the
// tokens of each pool in ascending order, then the tokens that are not yet in a complete pool, then -1. A pool that is
// not completely visible to the row, or a token beyond its page table, raises a fault.
//
// Block: one row; thread t takes slots t, t + 256, ..., so that adjacent threads write adjacent slots.
#pragma once
#include "smxx/floats.cuh"
#include "smxx/linear/args.h"

DEVICE void spread_pools_body(const SpreadPoolsArgs& a) {
    begin_after_previous();
    const i64 row = blockIdx.x;
    const i32* pools = a.pools + row * a.pool_stride;
    i32* out = a.out + row * a.out_stride;
    const i32 seen = max(a.seen[row], 0), whole = seen / a.pool;
    const bool paged = a.table != nullptr;
    const i32 table_row = paged ? a.table_rows[row] : 0, offset = paged ? 0 : a.offsets[row];
    const i32* table = a.table + table_row * a.table_stride;
    const bool there = table_row >= 0 && table_row < a.tables;
    const auto place = [&](i32 token) {
        if (!paged) return offset + token;
        const i32 page = token / a.page_tokens;
        if (there && page < a.table_columns) return table[page] * a.page_tokens + (token - page * a.page_tokens);
        raise_fault(a.faults, kFaultPosition);
        return -1;
    };
    const i32 width = a.columns * a.pool;
    i32 listed = 0; // number of slots of pools
    for (i32 from = 0; from < width; from += kThreads) {
        const i32 at = from + threadIdx.x, i = at / a.pool, p = at < width ? pools[i] : -1;
        if (p >= whole) raise_fault(a.faults, kFaultPosition);
        if (p >= 0) out[at] = p < whole ? place(p * a.pool + at - i * a.pool) : -1;
        const i32 some = __syncthreads_count(p >= 0);
        listed += some;
        if (some < kThreads) break; // negative entries come only after all pools
    }
    const i32 tail = seen - whole * a.pool;
    for (i32 i = listed + threadIdx.x; i < width + a.pool - 1; i += kThreads)
        out[i] = i - listed < tail ? place(whole * a.pool + i - listed) : -1;
    if (threadIdx.x == 0) a.lengths[row] = listed + tail;
}
