// Arguments of the matrix products with packed weights. They are mirrored in Go.
#pragma once

#include "ptx/types.h"
#include "sm90/experts/args.h"

struct PackedArgs {
    const u8* weights;       // tiles (pack.cuh): [experts, tiles, units, 4, bytes of a unit]
    const float* factors;    // f32 [experts, 2]: of rows whose number in 16 is below 8, and of the others
    const u8* x;             // bf16 [., k]: rows to multiply
    void* out;               // bf16 or f32 rows
    const i32* order;        // experts: pairs row * top + choice by expert; null: a plain product
    const ListedView* list;  // experts that have rows
    const i32* totals;       // their number
    float* sums;             // parts of k: f32 [items of a part, parts, threads that multiply, sums of a thread]
    u32* arrived;            // parts that have come to sums, [items of a part]: zero before and after the launch
    i64 x_pitch;             // bytes between rows
    i64 out_stride;          // elements between rows
    i32 x_bytes;             // of a row: what lies behind counts as zeros
    i32 rows;                // a plain product's
    i32 top;                 // choices of a row; 0: a plain product
    i32 tiles;               // of 256 weight rows
    i32 units;               // of k
    i32 parts;               // of k that are summed apart: 1 for experts
    i32 columns;             // of out
    i32 gated;               // 1: rows of gate and up alternate by eight, and out is their activation
    i32 from_pairs;          // 1: x has a row for each place of the order, out a row for each pair
    i32 out_f32;
    float limit;             // of the gate, 0: none
    i32 reserved;
};

// Arguments for packing one matrix, or gate and up.
struct PackPackedArgs {
    const u8* first;         // codes as they are stored, row by row
    const u8* second;        // up, or null
    const u8* first_scales;  // null where the codes hold them
    const u8* second_scales;
    const u8* first_zeros;  // u8 zero points, one for each scale, or null
    const u8* second_zeros;
    u8* to;            // [tiles, units, 4, bytes of a unit]
    i64 stride;        // bytes between rows of codes
    i64 scale_stride;  // scales between rows of scales
    i32 rows;
    i32 columns;
    i32 tiles;
    i32 units;
    i32 block_rows;     // rows and columns that share a scale
    i32 block_columns;
    i32 skip_rows;      // rows of the first block that lie before the matrix
    i32 source;         // how codes are stored (pack.cuh)
    i32 scale_type;     // f32, bf16, f16, e4m3 or e8m0 (pack.cuh)
    i32 middle;         // zero point where there are none
};
