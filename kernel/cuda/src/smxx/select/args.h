// Arguments of the kernel that looks up the scores of selected positions.
#pragma once
#include "smxx/base.h"

struct SelectedScoresArgs {
    const f32* scores;    // [rows, stride]; null: no row has scores
    const i32* positions; // [rows, columns]; -1: no position
    const i32* lengths;   // [rows] number of keys of a row; if it is at most `columns`, the row has no scores
    f32* out;             // [rows, columns]
    i64 stride;           // elements between rows of scores
    i64 position_stride;  // entries between rows of positions
    i64 out_stride;       // elements between rows of out
    i32 rows;
    i32 columns;
    i32 keys; // number of columns of scores
    i32 reserved;
};
