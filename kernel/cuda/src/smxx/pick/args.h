// Arguments of the kernels that copy rows from given positions (pick) and to given positions (put).
#pragma once
#include "smxx/base.h"

struct PickArgs {
    const void* table; // [table_rows, columns] of table_type
    const i32* ids;    // [rows] row of the table; negative: a row of zeros if optional is 1
    void* out;         // [rows, columns] of out_type
    u32* faults;       // one word of fault bits, or null
    i64 table_stride;  // elements between rows of table
    i64 id_stride;     // entries between ids
    i64 out_stride;    // elements between rows of out
    i32 rows;
    i32 columns;
    i32 table_rows;
    i32 table_type; // f32, bf16 or f16
    i32 out_type;   // f32 or bf16
    i32 optional;   // 1: negative ids give rows of zeros and raise no fault
};

struct PutArgs {
    const void* x;     // [rows, columns] of x_type
    const i32* places; // [rows] row of out; negative: the row is not copied
    void* out;         // [out_rows, columns] of out_type
    u32* faults;       // one word of fault bits, or null
    i64 x_stride;      // elements between rows of x
    i64 place_stride;  // entries between places
    i64 out_stride;    // elements between rows of out
    i32 rows;
    i32 columns;
    i32 out_rows;
    i32 x_type;   // f32 or bf16
    i32 out_type; // f32 or bf16
    i32 reserved;
};
