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

struct GateQuantiseArgs {
    const u16* gate; // bf16 [rows, columns]; multiple of 16, as the other addresses
    const u16* up;   // bf16 [rows, columns]
    u16* out;        // bf16 [rows, columns], may be gate or up itself
    u8* codes;       // e4m3 [rows, columns]: out quantised
    f32* scales;     // [ceil(columns / 128), scale_stride]
    i64 gate_stride; // elements between rows, as the other strides
    i64 up_stride;
    i64 out_stride;
    i64 code_stride;
    i64 scale_stride;
    i32 rows;
    i32 columns;     // multiple of 16
    i32 exact;       // 1: scales are any f32, 0: powers of two
    f32 limit;       // 0: no clamps
};
