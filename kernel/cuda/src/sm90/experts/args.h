// Arguments of the expert kernels. They are mirrored in Go.
#pragma once

#include "ptx/types.h"
#include "smxx/route/args.h"

// An expert that has rows (pairs). Places are positions in the order sorted by expert.
struct ListedView {
    i32 expert;
    i32 first;   // first place of the expert
    i32 count;   // number of places (pairs) of the expert
    i32 before;  // number of token groups of the experts listed before this one
};

struct ExpertsArgs {
    const u8* gate_up;             // packed tiles (pack.cuh): [experts, inner tiles, blocks of hidden, 32768]
    // Float2 per tile and block, e4m3 and folded e2m1: [experts, inner tiles, blocks of hidden].
    const float2* gate_up_scales;
    const u8* down;                // packed tiles: [experts, hidden tiles, blocks of inner, 32768]
    const float2* down_scales;     // e4m3 only: [experts, hidden tiles, blocks of inner]
    const u16* x;                  // bf16 [rows, hidden]
    u16* out;                      // bf16 [rows, hidden]: the weighted sum of expert results is added to it
    const i32* ids;                // [rows, top] expert of each choice; negative: no expert
    const float* weights;          // f32 [rows, top]
    u32* faults;                   // one word of fault bits, or null
    u8* codes;                     // e4m3 only: [rows, hidden_pitch] codes of x, scratch
    float* code_scales;            // e4m3 only: [rows, hidden_blocks] scales of codes, scratch
    i32* order;                    // [rows * top]: pairs row * top + choice, sorted by expert, scratch
    ListedView* list;              // [experts]: experts that have rows, scratch
    i32* totals;                   // [4]: experts in list, groups of these experts, pairs sorted; scratch
    u8* inner;            // [rows * top, inner_pitch]: activations in the order of `order`, e4m3 or bf16, scratch
    float* inner_scales;  // e4m3 only: [rows * top, inner_blocks] scales of inner, scratch
    u16* results;         // bf16 [rows * top, hidden]: result of each pair, scratch
    i64 x_stride;         // elements between rows of x
    i64 out_stride;       // elements between rows of out
    i64 id_stride;        // entries between rows of ids
    i64 weight_stride;    // elements between rows of weights
    i32 rows;
    i32 experts;
    i32 top;
    i32 hidden;         // multiple of 16
    i32 inner_columns;  // multiple of 16
    i32 hidden_pitch;   // bytes of a row of codes
    i32 inner_pitch;    // bytes of a row of inner, whole tiles of 128 columns
    i32 hidden_blocks;  // blocks of 128 bytes in a row of hidden
    i32 inner_blocks;   // blocks of 128 bytes in a row of inner
    i32 hidden_tiles;   // weight tiles of 256 rows of down
    i32 inner_tiles;    // weight tiles of 128 rows of gate and 128 of up
    i32 group_rows;     // maximum pairs of a group: 64 or 128
    i32 pow2;           // e4m3 only; 1: scales of activations are powers of two
    float limit;        // limit of gate and up before the activation; 0: no limit
};

// Arguments of the kernel that routes rows to experts and prepares their matrix products.
struct RouteExpertsArgs {
    RouteArgs route;      // its ids and weights are those of `experts`
    ExpertsArgs experts;
    u32* arrived;         // number of thread blocks that have finished routing; zero before and after the launch
    i32 blocks;           // thread blocks that route
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
    const u8* first;         // [rows, columns / 2] row-major, two values per byte: gate, or down
    const u8* second;        // e2m1 codes of up if first is gate, or null
    const u8* first_scales;  // e8m0 [rows, columns / 32]
    const u8* second_scales;
    u8* to;             // [tiles, blocks, 8704], or folded [tiles, blocks, 17408]
    float2* scales_to;  // folded only: [tiles, blocks]
    i64 stride;         // bytes between rows of first and second
    i64 scale_stride;   // bytes between rows of scales
    i32 rows;
    i32 columns;  // multiple of 32
    i32 tiles;
    i32 blocks;
};
