// Looks up the scores of selected positions, for rows whose selection is recorded. The result is zero for rows without
// scores and for entries without a selected position.
//
// Block: one row.
// Bytes: a position and a score are read, a score is written.
#pragma once
#include "smxx/select/args.h"

DEVICE void selected_scores_body(const SelectedScoresArgs& a) {
    begin_after_previous();
    const i64 row = blockIdx.x;
    const i32* positions = a.positions + row * a.position_stride;
    const f32* scores = a.scores + row * a.stride;
    f32* out = a.out + row * a.out_stride;
    const bool scored = a.scores != nullptr && a.lengths[row] > a.columns;
    for (i32 i = threadIdx.x; i < a.columns; i += kThreads) {
        const i32 at = positions[i];
        out[i] = scored && at >= 0 && at < a.keys ? scores[at] : 0.0f;
    }
}
