// Arguments of the gated activation.
#pragma once
#include "smxx/base.h"

struct GateArgs {
    const void* gate; // [rows, columns] of gate_type
    const void* up;   // [rows, columns] of up_type
    void* out;        // [rows, columns] of out_type; may be the memory of gate or up
    i64 gate_stride;  // elements between rows of gate
    i64 up_stride;    // elements between rows of up
    i64 out_stride;   // elements between rows of out
    i32 rows;
    i32 columns;
    i32 gate_type; // f32 or bf16
    i32 up_type;   // f32 or bf16
    i32 out_type;  // f32 or bf16
    f32 limit;     // limit of the clamps of gate and up; 0: no clamps
};

struct GateQuantiseArgs {
    const u16* gate; // bf16 [rows, columns]; this and the other addresses are multiples of 16
    const u16* up;   // bf16 [rows, columns]
    u16* out;        // bf16 [rows, columns]; may be the memory of gate or up
    u8* codes;       // e4m3 [rows, columns] codes of out
    f32* scales;     // f32 [ceil(columns / 128), scale_stride] scales of codes
    i64 gate_stride; // elements between rows of gate; the other strides are also in elements
    i64 up_stride;
    i64 out_stride;
    i64 code_stride;
    i64 scale_stride;
    i32 rows;
    i32 columns;     // multiple of 16
    i32 exact;       // 1: scales are arbitrary f32; 0: scales are powers of two
    f32 limit;       // limit of the clamps of gate and up; 0: no clamps
};
