// Arguments of the top-k kernels, passed by value as one __grid_constant__ parameter. They are mirrored in Go.
#pragma once

#include "ptx/types.h"

// The value written for a selected position p of a row. Unused entries are -1 under every transform.
enum TopKTransform : i32 {
    kTopKPosition = 0,  // p
    kTopKPaged = 1,     // page_table[row / rows_per_request][p >> page_shift] << page_shift | low bits of p
    kTopKRagged = 2,    // p + offsets[row]
};

// Few long rows are selected in two launches. The first cuts every row into `parts` parts and writes the best k of
// each part with their scores (kept). The second selects among those and maps its columns back to positions (via).
struct TopKArgs {
    // f32 [rows, stride], 16-byte aligned; with via: f32 [rows, parts * k], the scores that the first launch kept.
    const float* scores;
    const i32* lengths;       // i32 [rows] number of candidates of a row; 0 or less: the row is empty
    const i32* starts;        // i32 [rows] column of position 0 of a row; null: column 0
    // i32 [rows, k]: selected positions, ascending and transformed, then -1; with kept: i32 [rows, parts, k].
    i32* out;
    i32* counts;              // i32 [rows] number of entries of out that are not -1, or null
    const i32* page_table;    // i32 [requests, table_stride], for kTopKPaged
    const i32* offsets;       // i32 [rows], for kTopKRagged
    float* kept;              // f32 [rows, parts, k] scores of the selected positions, then -inf; or null
    const i32* via;           // i32 [rows, parts * k] position in the row of each column of scores, or null
    i64 stride;               // floats between rows of scores, a multiple of 4
    i64 table_stride;         // entries between rows of page_table
    i32 rows;                 // number of rows
    i32 k;                    // entries to select per row, 1 to 2048
    i32 transform;            // TopKTransform
    i32 rows_per_request;     // query rows that share a row of page_table, at least 1
    i32 page_shift;           // log2 of the tokens per page
    i32 parts;                // parts of each row, at least 1
    i32 part;                 // positions per part, a multiple of 4; used if parts > 1
    i32 columns;              // maximum length of a row; 0: lengths are not clipped
    i32 marked;               // 1: select only rows whose out begins with kMarkedRow
    i32 reserved;
};
static_assert(sizeof(TopKArgs) == 128, "mirrored in Go");

// The first entry of out for a row that a kernel has not selected; another kernel then selects this row. No selection
// begins with this value.
constexpr i32 kMarkedRow = static_cast<i32>(0x80000000u);
