// Argument structs of the kernels that normalise rows and locate positions.
#pragma once
#include "smxx/views.h"

struct RMSNormArgs {
    const u16* x;       // bf16 [rows, columns]
    u16* out;           // bf16 [rows, columns], may be x itself
    const void* weight; // f32 or bf16 [columns]
    f64 epsilon;
    i64 x_stride;       // elements between rows
    i64 out_stride;     // elements between rows
    i32 rows;
    i32 columns;
    i32 weight_bf16;    // 1: the weight is bf16
    i32 reserved;
};

struct LocateArgs {
    const i32* positions;  // [rows, columns]; negative: none
    i32* out;              // [rows, columns], may be positions itself
    const i32* table;      // [tables, table_stride] pages, or null
    const i32* table_rows; // [rows]: row of the table
    const i32* offsets;    // [rows]: what is added to a position when there is no table
    u32* faults;           // one word of fault bits, or null
    i64 position_stride;   // entries between rows
    i64 out_stride;        // entries between rows
    i64 table_stride;      // entries between rows
    i32 rows;
    i32 columns;
    i32 page_tokens;
    i32 table_columns;     // pages of a row of the table: a position beyond is a fault
    i32 tables;            // rows of the table: one beyond is a fault
    i32 reserved;
};
