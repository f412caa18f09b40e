// Arguments of the kernels that DeepSeek-V4.1 needs in addition to those of V4.
#pragma once
#include "smxx/views.h"

struct ScoreV41Args {
    PoolView pool;         // pages of page_tokens keys of 64 bytes, then page_tokens times 4 exponents
    const u16* queries;    // bf16 [rows, 32, 128]
    const f32* weights;    // [rows, 32]
    const i32* table;      // [tables, table_stride] page numbers
    const i32* table_rows; // [rows] row of table of each query row
    const i32* lengths;    // [rows] number of columns to score
    const i32* blocks;     // [rows, block_stride] numbers of the blocks of keys to score; null: all keys
    f32* scores;           // [rows, stride]
    u32* faults;           // one word of fault bits, or null
    i64 table_stride;
    i64 block_stride;
    i64 stride;
    i32 rows;
    i32 columns;    // columns of scores
    i32 skip;       // rows with at most this many columns are not scored
    i32 tables;     // rows of table
    i32 pages;      // columns of table
    i32 page_shift; // a page has 2^page_shift keys
    i32 block_shift;
    i32 most_blocks; // columns of blocks
};

struct BlockMaxArgs {
    const f32* scores;  // [rows, stride]
    const i32* lengths; // [rows] number of keys of a row
    f32* out;           // [rows, out_stride]
    i64 stride;
    i64 out_stride;
    i32 rows;
    i32 columns; // columns of scores
    i32 size;    // keys per block
    i32 skip;    // rows with at most this many keys are not written
};

struct EngramArgs {
    u16* x;            // bf16 [rows, streams * hidden], overwritten
    const u16* kv;     // bf16 [rows, (streams + 1) * hidden]: a key for each stream, then the value
    const f32* weight; // [streams, hidden]
    f64 epsilon;       // added to means of squares
    i64 x_stride;
    i64 kv_stride;
    i64 weight_stride;
    i32 rows;
    i32 hidden;  // multiple of 8
    i32 streams; // at most 4
    i32 reserved;
};

struct ReadTableArgs {
    const u8* values; // [table_rows, dim] in host memory: f32, bf16 or e4m3
    const u8* scales; // [table_rows, dim / 32] exponents of the scales of e4m3 values, or null
    const i32* ids;   // [rows, id_stride]
    u16* out;         // bf16 [rows, out_stride]: columns * dim values
    u32* faults;      // one word of fault bits, or null
    i64 table_rows;
    i64 id_stride;
    i64 out_stride;
    i32 rows;
    i32 columns; // table rows per output row
    i32 dim;     // multiple of 8
    i32 type;    // bytes per value: 1 (e4m3), 2 (bf16) or 4 (f32)
};

struct CollapseArgs {
    const u16* x;       // bf16 [rows, streams * hidden]
    const f32* weights; // [rows, streams]
    u16* out;           // bf16 [rows, hidden]
    i64 x_stride;
    i64 weight_stride;
    i64 out_stride;
    i32 rows;
    i32 hidden;
    i32 streams;
    i32 reserved;
};
