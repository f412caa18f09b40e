// Arguments of linear attention with a gate per channel (KDA), and of pools of index keys.
#pragma once
#include "smxx/base.h"

// The rows of a pass that belong to each sequence, and the slot of its state.
struct SequencesView {
    const i32* rows;      // [count] rows of the pass, sequence after sequence, ordered by position
    // [sequences, 6]: first entry in rows, number of rows, slot, 1 if the sequence begins, number of earlier held-back
    // rows, 1 if these rows are held back. A row that is held back, such as a draft, does not update the state in this
    // pass.
    const i32* spans;
    // [count] per row of the pass: snapshot slot in which the state after it is also stored; -1: none.
    const i32* snapshots;
    u32* faults;          // one word of fault bits, or null
    i32 count;            // number of rows of the pass
    i32 sequences;
    i32 slots; // slots of the state tensor
    i32 kept;  // number of snapshot slots
    i32 held;  // maximum held-back rows of a slot
    i32 reserved;
};

struct ConvolveArgs {
    SequencesView of;
    const u16* x;      // bf16 [count, columns]
    u16* out;          // bf16 [count, columns]
    const f32* weight; // [columns, 4]
    f32* state;        // [slots * 3, columns] last three rows of each sequence, oldest first
    f32* kept;         // [kept * 3, columns] snapshots of state
    f32* held;         // [slots * held, columns] held-back rows, or null
    i64 x_stride;      // elements between rows; both strides are multiples of 4
    i64 out_stride;
    i32 columns; // a multiple of 4
    i32 reserved;
};

struct DeltaArgs {
    SequencesView of;
    const u16* q; // bf16 [count, heads * 128], as k and v
    const u16* k;
    const u16* v;
    const f32* gate; // [count, heads * 128]
    const f32* beta; // [count, heads]
    const f32* a_log; // [heads]
    const f32* bias;  // [heads * 128]
    u16* out;         // bf16 [count, heads * 128]
    f32* state;       // [slots, heads, 128 keys, 128 values]
    f32* kept;        // [kept, heads, 128, 128] snapshots of state
    f32* held;        // [slots * held, 3 * heads * 128 + heads] held-back rows: k, v, gate, beta; or null
    const i32* first; // [sequences] position of the first row of each sequence, or null: no groups of rows
    i64 q_stride;     // elements between rows; the strides are multiples of 4, except that of beta
    i64 k_stride;
    i64 v_stride;
    i64 gate_stride;
    i64 beta_stride;
    i64 out_stride;
    i32 heads;
    f32 bound; // lower bound of the logarithm of a channel's decay
    i32 part;  // rows that a launch computes: kBeforeGroups or kAfterGroups
    i32 reserved;
};

// Parts of the rows of a sequence: the rows before its first whole group, or all rows if it has none; and the rows
// after its last whole group.
constexpr i32 kBeforeGroups = 0;
constexpr i32 kAfterGroups = 1;

struct GatedNormArgs {
    const u16* x;      // bf16 [rows, heads * columns]
    const u16* gate;   // bf16 [rows, heads * columns]
    const f32* weight; // [columns]
    u16* out;          // bf16 [rows, heads * columns]
    f64 epsilon;
    i64 x_stride; // elements between rows of x
    i64 gate_stride;
    i64 out_stride;
    i32 rows;
    i32 heads;
    i32 columns;
    i32 reserved;
};

struct LayerNormArgs {
    const void* x;     // f32 or bf16 [rows, columns]
    void* out;         // [rows, columns] of the type of x
    const f32* weight; // [columns]
    const f32* bias;   // [columns]
    f64 epsilon;
    i64 x_stride; // elements between rows of x
    i64 out_stride;
    i32 rows;
    i32 columns;
    i32 x_type;
    i32 out_type;
};

struct MeanStreamsArgs {
    const u16* x; // bf16 [rows, streams * hidden]
    u16* out;     // bf16 [rows, hidden]
    i64 x_stride; // elements between rows of x
    i64 out_stride;
    i32 rows;
    i32 hidden;
    i32 streams;
    i32 reserved;
};

struct SpreadPoolsArgs {
    const i32* pools;      // [rows, columns] selected pools, ascending, then -1
    const i32* seen;       // [rows] number of visible tokens of a row
    const i32* table;      // [tables, table_stride] pages, or null
    const i32* table_rows; // [rows]
    const i32* offsets;    // [rows] added to a token when there is no table
    i32* out;              // [rows, columns * pool + pool - 1] slots of the tokens, then -1
    i32* lengths;          // [rows]
    u32* faults;           // one word of fault bits, or null
    i64 pool_stride;       // entries between rows of pools
    i64 out_stride;
    i64 table_stride;
    i32 rows;
    i32 columns;
    i32 pool; // tokens per pool
    i32 page_tokens;
    i32 table_columns;
    i32 tables;
};
