// Argument struct of the kernel that copies chosen rows of a table.
#pragma once
#include "smxx/base.h"

struct PickArgs {
    const void* table; // [table_rows, columns] of table_type
    const i32* ids;    // [rows]: row of the table
    void* out;         // [rows, columns] of out_type
    u32* faults;       // one word of fault bits, or null
    i64 table_stride;  // elements between rows
    i64 id_stride;     // entries between rows
    i64 out_stride;    // elements between rows
    i32 rows;
    i32 columns;
    i32 table_rows;
    i32 table_type; // f32, bf16 or f16
    i32 out_type;   // f32 or bf16
    i32 reserved;
};
