// Arguments of the expert kernels. They are mirrored in Go.
#pragma once

#include "ptx/types.h"
#include "smxx/route/args.h"

// One expert that has rows.
struct ListedView {
    i32 expert;
    i32 first;   // its first place in the sorted order
    i32 count;   // places it has
    i32 before;  // groups of the experts listed before it
};

struct ExpertsArgs {
    const u8* gate_up;             // packed tiles (pack.cuh): [experts, inner tiles, blocks of hidden, 32768]
    const float2* gate_up_scales;  // e4m3 and folded e2m1: [experts, inner tiles, blocks of hidden]
    const u8* down;                // packed tiles: [experts, hidden tiles, blocks of inner, 32768]
    const float2* down_scales;     // e4m3 alone: [experts, hidden tiles, blocks of inner]
    const u16* x;                  // bf16 [rows, hidden]
    u16* out;                      // bf16 [rows, hidden]: the weighted sum is added
    const i32* ids;                // [rows, top]; negative: no expert
    const float* weights;          // f32 [rows, top]
    u32* faults;                   // one word of fault bits, or null
    u8* codes;                     // e4m3 alone: [rows, hidden_pitch], scratch
    float* code_scales;            // e4m3 alone: [rows, hidden_blocks], scratch
    i32* order;                    // [rows * top]: pairs row * top + choice, sorted by expert, scratch
    ListedView* list;              // [experts]: experts that have rows, scratch
    i32* totals;                   // [4]: experts listed, their groups, pairs sorted; scratch
    u8* inner;            // [rows * top, inner_pitch]: activations in the order of `order`, e4m3 or bf16, scratch
    float* inner_scales;  // e4m3 alone: [rows * top, inner_blocks], scratch
    u16* results;         // bf16 [rows * top, hidden]: what each pair gave, scratch
    i64 x_stride;         // elements between rows
    i64 out_stride;       // elements between rows
    i64 id_stride;        // entries between rows
    i64 weight_stride;    // elements between rows
    i32 rows;
    i32 experts;
    i32 top;
    i32 hidden;         // multiple of 16
    i32 inner_columns;  // multiple of 16
    i32 hidden_pitch;   // bytes of a row of codes
    i32 inner_pitch;    // bytes of a row of inner, whole tiles of 128 columns
    i32 hidden_blocks;  // of 128 bytes
    i32 inner_blocks;   // of 128 bytes
    i32 hidden_tiles;   // of 256 rows of down
    i32 inner_tiles;    // of 128 rows of gate and 128 of up
    i32 group_rows;     // most pairs of a group: 64 or 128
    i32 pow2;           // e4m3 alone: 1: scales of activations are powers of two
    float limit;        // of the gate, 0: none
};

// Arguments of the kernel that routes rows to experts and prepares their matrix products.
struct RouteExpertsArgs {
    RouteArgs route;      // ids and weights are those of the experts
    ExpertsArgs experts;
    u32* arrived;         // blocks that have chosen: zero before and after the launch
    i32 blocks;           // that choose
    i32 reserved;
};

// Arguments for packing the matrices of one expert.
struct PackExpertArgs {
    const u8* first;            // [rows, columns] row-major: gate, or down
    const u8* second;           // up, or null
    const float* first_scales;  // [ceil(rows / 128), ceil(columns / 128)], or null
    const float* second_scales;
    u8* to;             // [tiles, blocks, 32768]
    float2* scales_to;  // [tiles, blocks], or null
    i64 stride;         // bytes between rows of first and second
    i64 scale_stride;   // floats between rows of scales
    i32 rows;
    i32 row_bytes;
    i32 tiles;
    i32 blocks;
};

// Arguments for packing the e2m1 matrices of one expert.
struct PackE2M1Args {
    const u8* first;         // [rows, columns / 2] row-major, two values a byte: gate, or down
    const u8* second;        // up, or null
    const u8* first_scales;  // e8m0 [rows, columns / 32]
    const u8* second_scales;
    u8* to;             // [tiles, blocks, 8704], or folded [tiles, blocks, 17408]
    float2* scales_to;  // folded alone: [tiles, blocks]
    i64 stride;         // bytes between rows of first and second
    i64 scale_stride;   // bytes between rows of scales
    i32 rows;
    i32 columns;  // multiple of 32
    i32 tiles;
    i32 blocks;
};
