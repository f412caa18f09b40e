// Arguments of the matrix products with packed weights. They are mirrored in Go.
#pragma once

#include "ptx/types.h"
#include "sm90/experts/args.h"

struct PackedArgs {
    const u8* weights;       // packed tiles (pack.cuh): [experts, tiles, units, 4 stripes, bytes of a unit]
    const float* factors;    // f32 [experts, 2]: factor of weight rows with row % 16 < 8, and of the other weight rows
    const u8* x;             // bf16 [., k]: token rows to multiply, x_pitch bytes apart
    void* out;               // bf16 or f32 [rows, columns], out_stride elements apart
    const i32* order;        // experts: pairs (row * top + choice) sorted by expert; null: a plain product
    const ListedView* list;  // experts that have rows, with their places in order
    const i32* totals;       // number of entries of list
    float* sums;             // partial sums over k: f32 [items of a part, parts, math threads, sums of a thread]
    u32* arrived;            // [items of a part]: number of parts that are in sums; zero before and after the launch
    i64 x_pitch;             // bytes between rows of x
    i64 out_stride;          // elements between rows of out
    i32 x_bytes;             // bytes of a row of x; columns beyond them are treated as zeros
    i32 rows;                // token rows of a plain product
    i32 top;                 // experts per row; 0: a plain product
    i32 tiles;               // weight tiles of 256 rows
    i32 units;               // units of k
    i32 parts;               // parts of k that are summed separately; 1 for experts
    i32 columns;             // columns of out
    i32 gated;  // 1: weight rows of gate and up alternate in groups of eight, and out is the gated activation
    i32 from_pairs;          // 1: x has a row per place of order, and out a row per pair
    i32 out_f32;
    float limit;             // limit of gate and up before the activation; 0: no limit
    i32 reserved;
};

// Arguments for packing one matrix, or gate and up.
struct PackPackedArgs {
    const u8* first;         // codes in the stored format, row by row
    const u8* second;        // codes of up if first is gate, or null
    const u8* first_scales;  // scales of first; null if the codes contain them
    const u8* second_scales;
    const u8* first_zeros;  // u8 zero points, one per scale, or null
    const u8* second_zeros;
    u8* to;            // [tiles, units, 4, bytes of a unit]
    i64 stride;        // bytes between rows of codes
    i64 scale_stride;  // scales between rows of scales
    i32 rows;
    i32 columns;
    i32 tiles;
    i32 units;
    i32 block_rows;     // rows that share a scale
    i32 block_columns;
    i32 skip_rows;      // rows of the first scale block that lie before the matrix
    i32 source;         // storage format of the codes (enum Source in pack.cuh)
    i32 scale_type;     // type of the scales: f32, bf16, f16, e4m3 or e8m0 (pack.cuh)
    i32 middle;         // zero point if first_zeros is null
};
