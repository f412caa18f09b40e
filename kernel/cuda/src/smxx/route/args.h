// Arguments of the kernel that routes rows to experts.
#pragma once
#include "smxx/base.h"

struct RouteArgs {
    const f32* logits; // [rows, experts]
    const f32* bias;   // [experts] added to the scores only for the choice; not read if there is a table
    const i32* table;  // [table_rows, top] experts of each token; null: the experts with the best scores are chosen
    const i32* tokens; // [rows] token of each row, if there is a table
    i32* ids;          // [rows, top] chosen experts, best score first
    f32* weights;      // [rows, top]
    u32* faults;       // one word of fault bits, or null
    i64 logit_stride;  // elements between rows of logits
    i64 table_stride;  // entries between rows of table
    i64 token_stride;  // entries between tokens
    i64 id_stride;     // entries between rows of ids
    i64 weight_stride; // elements between rows of weights
    i32 rows;
    i32 experts; // at most 1024, a multiple of groups
    i32 top;     // at most 32
    i32 groups;  // at most 32
    i32 keep_groups;
    i32 normalize; // 1: weights are divided by their sum
    f32 scale;
    i32 root; // 1: scores are sqrt(softplus(logit)); 0: scores are sigmoid(logit)
    i32 table_rows;
    i32 reserved;
};
