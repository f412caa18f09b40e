// Argument struct of the kernel that looks up the scores of selected positions.
#pragma once
#include "smxx/base.h"

struct SelectedScoresArgs {
    const f32* scores;    // [rows, stride]; null: no row is scored
    const i32* positions; // [rows, columns], -1: none
    const i32* lengths;   // [rows]: keys that a row sees; at most as many as columns: the row is not scored
    f32* out;             // [rows, columns]
    i64 stride;           // elements between rows of scores
    i64 position_stride;  // entries between rows
    i64 out_stride;       // elements between rows
    i32 rows;
    i32 columns;
    i32 keys; // columns of scores
    i32 reserved;
};
