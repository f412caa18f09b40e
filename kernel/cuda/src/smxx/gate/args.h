// Argument struct of the gated activation.
#pragma once
#include "smxx/base.h"

struct GateArgs {
    const void* gate; // [rows, columns] of gate_type
    const void* up;   // [rows, columns] of up_type
    void* out;        // [rows, columns] of out_type, may be gate or up itself
    i64 gate_stride;  // elements between rows
    i64 up_stride;    // elements between rows
    i64 out_stride;   // elements between rows
    i32 rows;
    i32 columns;
    i32 gate_type; // f32 or bf16
    i32 up_type;   // f32 or bf16
    i32 out_type;  // f32 or bf16
    f32 limit;     // 0: no clamps
};
