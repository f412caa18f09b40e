// Argument struct of the kernel that routes rows to experts.
#pragma once
#include "smxx/base.h"

struct RouteArgs {
    const f32* logits; // [rows, experts]
    const f32* bias;   // [experts], for the choice only; not read where a table chooses
    const i32* table;  // [table_rows, top]: the experts of a token; null: the best by score
    const i32* tokens; // [rows], where there is a table
    i32* ids;          // [rows, top], best first
    f32* weights;      // [rows, top]
    u32* faults;       // one word of fault bits, or null
    i64 logit_stride;  // elements between rows
    i64 table_stride;  // entries between rows
    i64 token_stride;  // entries between rows
    i64 id_stride;     // entries between rows
    i64 weight_stride; // elements between rows
    i32 rows;
    i32 experts; // at most 1024, a multiple of groups
    i32 top;     // at most 32
    i32 groups;  // at most 32
    i32 keep_groups;
    i32 normalize; // 1: weights are divided by their sum
    f32 scale;
    i32 root; // 1: scores are sqrt(softplus(logit)), 0: sigmoid(logit)
    i32 table_rows;
    i32 reserved;
};
