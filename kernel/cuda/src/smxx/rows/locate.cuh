// Positions to places in a cache: through a page table, or by adding a row's offset. A negative position stays -1.
//
// Block    8 warps, one row each. Traffic: an entry read and written per position, page numbers mostly from cache.
#pragma once
#include "smxx/base.h"
#include "smxx/rows/args.h"

// The block-th block of eight rows.
DEVICE void locate_body(const LocateArgs& a, i64 block) {
    begin_after_previous();
    i64 row = block * kWarpsPerBlock + (threadIdx.x >> 5);
    if (row >= a.rows) return;
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
    for (i32 i = lane_id(); i < a.columns; i += 32) {
        i32 p = positions[i], to = -1;
        if (p >= 0 && table != nullptr) {
            i32 page = p / a.page_tokens;
            if (page < pages) {
                to = table[page] * a.page_tokens + (p - page * a.page_tokens);
            } else {
                raise_fault(a.faults, kFaultPosition);
            }
        } else if (p >= 0) {
            to = p + offset;
        }
        out[i] = to;
    }
}
