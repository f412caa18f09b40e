// Arguments of the kernels over residual streams (v4 spec, 2.1) and over heads.
#pragma once
#include "smxx/base.h"

struct HyperMixArgs {
    const u16* x;     // bf16 [rows, streams * hidden]: the streams of a row are adjacent
    const f32* mix;   // [rows, streams * (2 + streams)]; if post is null, [rows, streams]
    const f32* base;  // f32 of the width of mix
    const f32* scale; // [3]; if post is null, [1]
    u16* out;         // bf16 [rows, hidden]
    // [rows, streams] weights of the sublayer's output; null: the streams are collapsed after the last layer.
    f32* post;
    f32* comb;        // [rows, streams, streams]; null if post is null
    f32* kept;        // copy of mix, of its shape; or null
    f32* next;        // [rows, streams] output of pre, and out is the sum weighted by carried; or null (v41 spec, 2.1)
    // [rows, streams] pre of the previous sublayer, may be the memory of next; null: the sum is the first stream.
    const f32* carried;
    f64 norm_epsilon; // added to the mean of squares of all streams
    i64 x_stride;     // elements between rows of x; the following strides are also in elements
    i64 mix_stride;
    i64 out_stride;
    i64 post_stride;
    i64 comb_stride;
    i64 kept_stride;
    i64 next_stride;
    i64 carried_stride;
    i32 rows;
    i32 hidden;
    i32 streams; // at most 16
    i32 rounds;  // rounds of the normalisation of comb
    f32 epsilon;
    i32 reserved;
};

struct HyperPostArgs {
    u16* x;          // bf16 [rows, streams * hidden], overwritten
    const u16* sub;  // bf16 [rows, hidden]
    const f32* post; // [rows, streams]
    const f32* comb; // [rows, streams * streams]
    i64 x_stride;    // elements between rows of x; the following strides are also in elements
    i64 sub_stride;
    i64 post_stride;
    i64 comb_stride;
    i32 rows;
    i32 hidden;
    i32 streams; // at most 16
    i32 reserved;
};

struct HeadNormArgs {
    u16* x;       // bf16 [rows, heads * columns], overwritten
    f64 epsilon;  // added to the mean of squares
    i64 x_stride; // elements between rows of x
    i32 rows;
    i32 heads;
    i32 columns; // columns of a head
    i32 reserved;
};
