// Arguments of the kernels that normalise rows and locate positions.
#pragma once
#include "smxx/views.h"

struct RMSNormArgs {
    const u16* x;       // bf16 [rows, columns]
    u16* out;           // bf16 [rows, columns]; may be the memory of x
    const void* weight; // f32 or bf16 [columns]
    f64 epsilon;
    i64 x_stride;       // elements between rows of x
    i64 out_stride;     // elements between rows of out
    i32 rows;
    i32 columns;
    i32 weight_bf16;    // 1: the weight is bf16
    i32 reserved;
};

struct LocateArgs {
    const i32* positions;  // [rows, columns] positions; negative: none
    i32* out;              // [rows, columns] slots; may be the memory of positions
    const i32* table;      // [tables, table_stride] page numbers, or null
    const i32* table_rows; // [rows] row of the table
    const i32* offsets;    // [rows] number that is added to the positions of a row if table is null
    u32* faults;           // one word of fault bits, or null
    i64 position_stride;   // entries between rows of positions
    i64 out_stride;        // entries between rows of out
    i64 table_stride;      // entries between rows of table
    i32 rows;
    i32 columns;
    i32 page_tokens;
    i32 table_columns;     // pages per row of the table; a position beyond them raises a fault
    i32 tables;            // rows of the table; a row number beyond them raises a fault
    i32 reserved;
};
