// Argument structs of the kernels over residual streams (v4 spec, 2.1) and over heads.
#pragma once
#include "smxx/base.h"

struct HyperMixArgs {
    const u16* x;     // bf16 [rows, streams * hidden]: the streams of a row side by side
    const f32* mix;   // [rows, streams * (2 + streams)]; [rows, streams] where post is null
    const f32* base;  // as wide as mix
    const f32* scale; // [3]; [1] where post is null
    u16* out;         // bf16 [rows, hidden]
    f32* post;        // [rows, streams]; null: the streams are collapsed after the last layer
    f32* comb;        // [rows, streams * streams], row after row; null where post is
    f32* kept;        // as wide as mix, which is copied to it; or null
    f32* next;        // [rows, streams]: takes pre, and out is the sum with carried; or null (v41 spec, 2.1)
    const f32* carried; // [rows, streams], may be next; null: the first stream
    f64 norm_epsilon; // added to the mean of squares of all streams
    i64 x_stride;     // elements between rows, also below
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
    i32 rounds;  // of the normalisation of comb
    f32 epsilon;
    i32 reserved;
};

struct HyperPostArgs {
    u16* x;          // bf16 [rows, streams * hidden], rewritten
    const u16* sub;  // bf16 [rows, hidden]
    const f32* post; // [rows, streams]
    const f32* comb; // [rows, streams * streams]
    i64 x_stride;    // elements between rows, also below
    i64 sub_stride;
    i64 post_stride;
    i64 comb_stride;
    i32 rows;
    i32 hidden;
    i32 streams; // at most 16
    i32 reserved;
};

struct HeadNormArgs {
    u16* x;       // bf16 [rows, heads * columns], rewritten
    f64 epsilon;  // added to the mean of squares
    i64 x_stride; // elements between rows
    i32 rows;
    i32 heads;
    i32 columns; // of a head
    i32 reserved;
};
