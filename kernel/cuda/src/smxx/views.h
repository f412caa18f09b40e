// Structs that several argument structs contain. They are mirrored in Go; a test compares sizes and offsets.
#pragma once
#include "smxx/base.h"

// A paged cache pool. Row `slot` is in page slot / page_tokens.
struct PoolView {
    u8* base;        // address of page 0, multiple of 16
    i64 page_bytes;  // bytes between the starts of two pages, multiple of 16
    i32 page_tokens; // rows per page
    // Rows of the pool. A slot at or beyond this number raises a fault and is not accessed; a negative slot means "no
    // row".
    i32 slots;
};

// The rotary table: cosines and sines of every position. The host computes it, so that all devices rotate by the same
// numbers.
struct RotaryView {
    const f32* table; // [rows, 64]: 32 cosines, then 32 sines, pair i at i and 32 + i
    i32 rows;         // rows of the table; for indexer vectors, 0 means that nothing is rotated
    i32 reserved;
};

// The rows of a gather, given as a list of slots.
struct SlotListView {
    const i32* slots; // [count] slot of each row; negative: a row of zeros is written
};

// The rows of a gather, given as all tokens of some requests through their page tables. Request r supplies rows
// starts[r] to starts[r+1]; its token t is in slot table[r, t / page_tokens] * page_tokens + t % page_tokens. Rows at
// or beyond starts[requests] are not written.
struct PageTableView {
    const i32* table;  // [requests, table_stride]
    const i32* starts; // [requests + 1], ascending from 0
    i32 table_stride;
    i32 requests;
};
