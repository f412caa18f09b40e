// Converts positions to cache slots, through a page table or by adding the offset of a row. A negative position
// becomes -1.
//
// Block: one row. A thread loads several positions, then their pages, before it writes.
// Bytes: an entry is read and written per position; page numbers come mostly from cache.
#pragma once
#include "smxx/base.h"
#include "smxx/rows/args.h"

DEVICE void locate_body(const LocateArgs& a, i64 row) {
    constexpr int kTogether = 8;
    begin_after_previous();
    const i32* positions = a.positions + row * a.position_stride;
    i32* out = a.out + row * a.out_stride;
    const i32* table = nullptr;
    i32 pages = 0, offset = 0;
    if (a.table != nullptr) {
        i32 table_row = a.table_rows[row];
        pages = table_row >= 0 && table_row < a.tables ? a.table_columns : 0;
        table = a.table + table_row * a.table_stride;
    } else {
        offset = a.offsets[row];
    }
    const bool shifts = (a.page_tokens & (a.page_tokens - 1)) == 0;
    const i32 shift = 31 - __clz(max(a.page_tokens, 1));
    for (i32 from = threadIdx.x; from < a.columns; from += kTogether * kThreads) {
        i32 p[kTogether], first[kTogether];
#pragma unroll
        for (int i = 0; i < kTogether; i++) {
            const i32 at = from + i * kThreads;
            p[i] = at < a.columns ? positions[at] : -1;
        }
#pragma unroll
        for (int i = 0; i < kTogether; i++) {
            if (p[i] < 0) {
                first[i] = -1;
            } else if (table == nullptr) {
                first[i] = p[i] + offset;
            } else {
                const i32 page = shifts ? p[i] >> shift : p[i] / a.page_tokens;
                first[i] = -1;
                if (page < pages) first[i] = table[page] * a.page_tokens + (p[i] - page * a.page_tokens);
                else raise_fault(a.faults, kFaultPosition);
            }
        }
#pragma unroll
        for (int i = 0; i < kTogether; i++) {
            const i32 at = from + i * kThreads;
            if (at < a.columns) out[at] = first[i];
        }
    }
}
