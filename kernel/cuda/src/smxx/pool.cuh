// Addressing of paged pools, and of the rows that a gather reads.
#pragma once
#include "smxx/views.h"

constexpr i64 kNoRow = -1;   // the row does not exist: write zeros
constexpr i64 kBeyond = -2;  // the row lies past the last row: write nothing

struct Place {
    u8* page;
    i32 row; // row within the page
};

// Returns page and row of a slot. Slots fit in 31 bits, so the division can be 32-bit; addresses need 64 bits.
DEVICE Place locate(const PoolView& p, i64 slot) {
    u32 page = (u32)slot / (u32)p.page_tokens;
    return {p.base + (i64)page * p.page_bytes, (i32)((u32)slot - page * (u32)p.page_tokens)};
}

// Returns the slot to access, or kNoRow. A slot beyond the pool raises a fault.
DEVICE i64 checked_slot(const PoolView& p, i64 slot, u32* faults) {
    if (slot < 0) return kNoRow;
    if (slot >= p.slots) {
        raise_fault(faults, kFaultSlot);
        return kNoRow;
    }
    return slot;
}

DEVICE i64 slot_of(const SlotListView& v, const PoolView&, i64 row) { return v.slots[row]; }

DEVICE i64 slot_of(const PageTableView& v, const PoolView& p, i64 row) {
    if (v.requests == 0 || row >= v.starts[v.requests]) return kBeyond;
    // Finds the last request that starts at or before the row. Empty requests have the same start as the next
    // request.
    i32 low = 0, high = v.requests - 1;
    while (low < high) {
        i32 mid = (low + high + 1) >> 1;
        if (v.starts[mid] <= row) low = mid;
        else high = mid - 1;
    }
    u32 token = (u32)(row - v.starts[low]), logical = token / (u32)p.page_tokens;
    i64 page = v.table[(i64)low * v.table_stride + logical];
    return page < 0 ? kNoRow : page * p.page_tokens + (token - logical * (u32)p.page_tokens);
}

// Returns the cosines of a position; its sines are 32 floats further. If the position is outside the table, raises a
// fault and returns null, which means "do not rotate".
DEVICE const f32* rotary(const RotaryView& r, i32 position, u32* faults) {
    if (position >= 0 && position < r.rows) return r.table + (i64)position * 64;
    raise_fault(faults, kFaultPosition);
    return nullptr;
}
