// Arguments of the matrix products: out [rows, columns] = input [rows, k] * weight [columns, k] transposed, for each
// element of a batch.
#pragma once

#include "ptx/types.h"

struct alignas(64) ProductArgs {
    TensorMap weight_map;        // e4m3 or bf16 [batch, columns, k]
    TensorMap input_map;         // e4m3 or bf16, as the weight: [batch, rows, k]
    TensorMap scale_map;         // e4m3 only: f32 [batch * blocks, rows], one scale per 128 columns of an input row
    TensorMap out_map;           // many rows, bf16 out: [batch, rows, columns]
    const float* weight_scales;  // e4m3 only: f32 [batch, ceil(columns / 128), blocks], one scale per 128 x 128 weights
    void* out;                   // bf16 or f32 [rows, out_stride], multiple of 16 bytes
    float* sums;                 // tiles of 256 rows if k has parts: partial sums f32 [blocks of the grid, 128 * 128]
    i64 out_stride;              // elements between rows of out
    i64 out_batch;               // elements of out between elements of the batch
    i32 rows;
    i32 columns;  // multiple of 16
    i32 blocks;   // blocks of k: 128 columns of e4m3, or 64 of bf16
    i32 parts;    // parts of k that are summed separately: 1, 2, 4 or 8
    i32 batch;
    i32 out_f32;  // 1: out is f32
    i32 stages;   // few rows: stages of the ring
    i32 ahead;    // few rows: stages whose weights are loaded before waiting for the previous kernel, 1 to stages
    i32 copied;   // narrow tiles, and e2m1 weights: input rows that a copy loads
    i32 across;   // many rows; 1: the blocks of a cluster have adjacent columns of the only tile of rows
    // e4m3 with a batch of one: f32 [columns] factors of the result columns, or null. Tiles of 256 rows do not support
    // them if k has parts.
    const float* factors;
    const u8* folded;  // few rows: e2m1 weights as tiles of 256 rows (experts/folded.cuh), instead of weight_map
    i32 beside;   // 1: does not read what the previous kernel writes, and overlaps that kernel (config.h)
    i32 leads;    // few rows; 1: the next kernel is a product with beside = 1, and may start at once
};
static_assert(sizeof(ProductArgs) == 640, "mirrored in Go");

// Arguments of the kernel that converts e2m1 weights to e4m3 codes.
struct UnfoldArgs {
    const u8* from;  // [tiles, blocks, 17408] (experts/folded.cuh)
    u8* to;          // e4m3 codes [rows, stride]
    i64 stride;
    i32 rows;
    i32 columns;  // multiple of 16
    i32 tiles;
    i32 blocks;  // blocks of 128 columns of k
};
